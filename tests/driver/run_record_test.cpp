#include "driver/run_record.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

TEST(RunRecord, ComesBack) {
  RunRecord record;
  record.name = "night";
  record.training_iteration = 7;
  record.metrics = {{"training_iteration", "the user's own"}};
  Failure failure;
  failure.message = "boom";
  record.failures.push_back(failure);
  const auto read = RunRecord::from_value(record.to_value());
  EXPECT_EQ(read.name, "night");
  EXPECT_EQ(read.training_iteration, 7);
  EXPECT_EQ(read.metrics, record.metrics);
  ASSERT_EQ(read.failures.size(), 1U);
  EXPECT_EQ(read.failures[0].message, "boom");
}

TEST(RunRecord, FieldsMayBeMissingButNotOfAnotherType) {
  EXPECT_EQ(RunRecord::from_value(Value::object()).num_workers, 1);
  for (const Value& broken : {Value{{"name", 3}}, Value{{"attempt", "x"}}, Value{{"failures", {1}}}, Value(3)})
    EXPECT_THROW(RunRecord::from_value(broken), StorageError) << broken;
}

}  // namespace
}  // namespace lockstep::driver
