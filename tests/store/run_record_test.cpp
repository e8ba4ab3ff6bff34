#include "store/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "store/run_directory.h"
#include "sys/node.h"

namespace lockstep::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunRecord record_with_history() {
  RunRecord record;
  record.name = "night";
  record.training_iteration = 7;
  record.updated = 90.5;
  record.driver = {12, 345, "here"};
  record.metrics = {{"training_iteration", "the user's own"}};
  record.attempts = {{0, 10, 20.5, 4, {"a", "b"}, "failed"}, {1, 21, 0, 2, {"a"}, "running"}};
  for (const int attempt : {0, 0, 1}) {
    Failure failure;
    failure.message = "boom";
    failure.attempt = attempt;
    failure.time = 15.25 + attempt;
    record.failures.push_back(failure);
  }
  return record;
}

TEST(RunRecord, IsFinishedAfterTheLastReport) {
  const std::filesystem::path place =
      std::filesystem::temp_directory_path() / ("lockstep-record-" + std::to_string(::getpid()));
  const auto finished = [&](const std::string& state, int reported, const Value& last) {
    std::filesystem::remove_all(place);
    std::filesystem::create_directories(place);
    RunRecord record;
    record.state = state;
    record.error = state == "failed" ? "boom" : "";
    record.training_iteration = reported;
    record.metrics = {{"training_iteration", reported}, {"loss", 1}};
    record.begin_attempt(0, 1, {}, 10);
    RunDirectory(place).write_run_json(record.to_value());
    finish_record(place, last, 50);
    return RunRecord::from_value(RunDirectory(place).read_run_json());
  };
  const Value last = {{"training_iteration", 4}, {"loss", 0.25}};
  for (const char* state : {"running", "finished", "failed"}) {  // the latter two: before a pause or a failure
    const RunRecord record = finished(state, 2, last);
    EXPECT_EQ(record.state, "finished") << state;
    EXPECT_EQ(record.training_iteration, 4) << state;
    EXPECT_EQ(record.metrics, last) << state;
    EXPECT_EQ(record.finished, 50) << state;
    EXPECT_EQ(record.error, "") << state;
  }
  EXPECT_EQ(finished("failed", 4, last).state, "failed");
  EXPECT_EQ(finished("finished", 4, last).finished, 0);
  std::filesystem::remove_all(place);
}

TEST(RunRecord, ComesBack) {
  const RunRecord record = record_with_history();
  const auto read = RunRecord::from_value(record.to_value());
  EXPECT_EQ(read.name, "night");
  EXPECT_EQ(read.training_iteration, 7);
  EXPECT_EQ(read.updated, 90.5);
  EXPECT_EQ(read.driver.pid, 12);
  EXPECT_EQ(read.driver.start_ticks, 345U);
  EXPECT_EQ(read.driver.hostname, "here");
  EXPECT_EQ(read.metrics, record.metrics);
  ASSERT_EQ(read.failures.size(), 3U);
  EXPECT_EQ(read.failures[0].message, "boom");
  EXPECT_EQ(read.failures[2].time, 16.25);
  ASSERT_EQ(read.attempts.size(), 2U);
  EXPECT_EQ(read.attempts[0].ended, 20.5);
  EXPECT_EQ(read.attempts[0].world_size, 4);
  EXPECT_THAT(read.attempts[0].nodes, ElementsAre("a", "b"));
  EXPECT_EQ(read.attempts[1].outcome, "running");
  EXPECT_EQ(read.attempts[1].ended, 0);
}

TEST(RunRecord, AttemptsNameTheirFailures) {
  const Value value = record_with_history().to_value();
  EXPECT_EQ(value.at("attempts").at(0).at("failures"), (Value{0, 1}));
  EXPECT_EQ(value.at("attempts").at(1).at("failures"), Value::array({2}));
  EXPECT_TRUE(value.at("attempts").at(1).at("ended").is_null());
}

TEST(RunRecord, AnAttemptEndsOnce) {
  RunRecord record;
  record.end_attempt("failed", 5);
  EXPECT_TRUE(record.attempts.empty());
  record.begin_attempt(0, 2, {"a"}, 4);
  EXPECT_EQ(record.attempts[0].started, 4);
  record.end_attempt("failed", 5);
  record.end_attempt("finished", 6);
  EXPECT_EQ(record.attempts[0].outcome, "failed");
  EXPECT_EQ(record.attempts[0].ended, 5);
  record.begin_attempt(1, 1, {"a"}, 7);
  record.begin_attempt(2, 1, {"a"}, 8);
  EXPECT_EQ(record.attempts[1].outcome, "failed") << "two never run at once";
  EXPECT_EQ(record.attempts[1].ended, 8);
  EXPECT_EQ(record.attempts[2].outcome, "running");
}

TEST(RunRecord, IsSignedByItsDriver) {
  RunRecord record;
  record.sign(90.5);
  EXPECT_EQ(record.driver.pid, getpid());
  EXPECT_GT(record.driver.start_ticks, 0U);
  EXPECT_EQ(record.driver.hostname, sys::host_name());
  EXPECT_EQ(record.updated, 90.5);
}

TEST(RunRecord, FilesOfEarlierVersionsAreRead) {
  Value value = record_with_history().to_value();
  value.erase("attempts");
  for (Value& failure : value["failures"]) failure.erase("time");
  const auto read = RunRecord::from_value(value);
  EXPECT_TRUE(read.attempts.empty());
  ASSERT_EQ(read.failures.size(), 3U);
  EXPECT_EQ(read.failures[0].time, 0);
  EXPECT_EQ(RunRecord::from_value(Value::object()).num_workers, 1);
}

TEST(RunRecord, FieldsOfAnotherTypeAreRefused) {
  for (const Value& broken :
       {Value{{"name", 3}}, Value{{"attempt", "x"}}, Value{{"failures", {1}}}, Value{{"failures", {{{"rank", "x"}}}}},
        Value{{"attempts", {1}}}, Value{{"attempts", {{{"nodes", {1}}}}}}, Value{{"driver", {{"pid", "x"}}}},
        Value{{"training_iteration", 1e200}}, Value{{"created", NAN}}, Value{{"state", 5}}})
    EXPECT_THROW(RunRecord::from_value(broken), StorageError) << broken;
  for (const Value& broken : {Value(3), Value(nullptr), Value::array()}) {
    std::string problem;
    EXPECT_THROW(RunRecord::from_value(broken, &problem), StorageError) << broken;
  }
}

TEST(RunRecord, FieldsOfAnotherTypeKeepTheirDefaultsWhenAsked) {
  std::string problem;
  const Value odd{{"attempt", "two"}, {"state", 5},        {"name", "n"}, {"metrics", {1}}, {"failures", "x"},
                  {"driver", 7},      {"created", 1700.5}, {"error", {}}, {"attempts", 1}};
  const auto read = RunRecord::from_value(odd, &problem);
  EXPECT_EQ(read.attempt, 0);
  EXPECT_EQ(read.state, "") << "not one that the run could have";
  EXPECT_EQ(read.name, "n");
  EXPECT_EQ(read.metrics, Value::object());
  EXPECT_EQ(read.created, 1700.5);
  EXPECT_THAT(problem, HasSubstr("state is not a string"));
  (void)RunRecord::from_value(Value{{"name", "n"}, {"finished", nullptr}}, &problem);
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace lockstep::store
