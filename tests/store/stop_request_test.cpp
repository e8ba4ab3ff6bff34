#include "store/stop_request.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include "scratch.h"
#include "sys/private_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

struct StopRequestTest : testing::Test {
  StopRequestTest() { files.enter(run.path()); }
  bool take(const DriverProcess& driver) { return take_stop_request(files, run.path(), driver); }

  const DriverProcess me{4711, 12, "here"};
  Scratch run;
  sys::PrivateFiles files;
};

TEST_F(StopRequestTest, IsTakenOnce) {
  EXPECT_FALSE(take(me));
  request_stop(run.path(), me);
  EXPECT_TRUE(take(me));
  EXPECT_FALSE(take(me));
  EXPECT_FALSE(withdraw_stop(run.path())) << "the driver took it";
}

TEST_F(StopRequestTest, CanBeWithdrawn) {
  request_stop(run.path(), me);
  EXPECT_TRUE(withdraw_stop(run.path()));
  EXPECT_FALSE(take(me));
}

TEST_F(StopRequestTest, OneForAnEarlierDriverIsDropped) {
  request_stop(run.path(), {4711, 11, "here"});
  EXPECT_FALSE(take(me));
  EXPECT_TRUE(fs::is_empty(run.path()));
}

TEST_F(StopRequestTest, OneThatOthersCouldHaveWrittenIsRefused) {
  request_stop(run.path(), me);
  fs::permissions(run / kStopRequest, fs::perms::all);
  EXPECT_THROW(take(me), StorageError);
  EXPECT_TRUE(withdraw_stop(run.path()));
  fs::create_symlink("/etc/hostname", run / kStopRequest);
  EXPECT_THROW(take(me), StorageError);
  fs::permissions(run.path(), fs::perms::all);
  EXPECT_THROW(request_stop(run.path(), me), StorageError);
}

}  // namespace
}  // namespace lockstep::store
