#include "horovod/service_for.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::horovod {
namespace {

TEST(ServiceForTest, OnlyABackendThatNeedsOneHasOne) { EXPECT_EQ(service_for({}), nullptr); }

TEST(ServiceForTest, HasTheBackendsHosts) {
  store::BackendNeeds needs;
  needs.services["rendezvous"] = {{"hosts", {"a", "b"}}};
  const auto service = service_for(needs);
  ASSERT_NE(service, nullptr);
  EXPECT_EQ(service->name(), "rendezvous");
  EXPECT_NO_THROW(service->check(2));
  EXPECT_THROW(service->check(3), ConfigError) << "there are two hosts";
}

TEST(ServiceForTest, MinWorkersAreForElasticJobs) {
  store::BackendNeeds needs;
  needs.services["rendezvous"] = {{"hosts", Value::array()}, {"min_workers", 3}};
  needs.replace_workers = true;
  EXPECT_THROW(service_for(needs)->check(2), ConfigError) << "more than there are workers";
  EXPECT_NO_THROW(service_for(needs)->check(3));
}

TEST(ServiceForTest, RefusesWhatItDoesNotUnderstand) {
  store::BackendNeeds needs;
  for (const Value& options : {Value(1), Value{{"hosts", 1}}, Value{{"hosts", {"a"}}, {"min_workers", "all"}}}) {
    needs.services["rendezvous"] = options;
    EXPECT_THROW(service_for(needs), ConfigError) << options;
  }
  needs.services = {{"printer", Value::object()}};
  EXPECT_THROW(service_for(needs), ConfigError);
}

}  // namespace
}  // namespace lockstep::horovod
