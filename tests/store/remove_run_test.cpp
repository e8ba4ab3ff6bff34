#include "store/remove_run.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include "scratch.h"
#include "sys/directory_lock.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

class RemoveRunTest : public testing::Test {
 protected:
  void SetUp() override {
    spit(run_ / "run.json", "{}");
    spit(run_ / "logs/rank_0.log", "x");
    spit(run_ / "checkpoint_000000/deep/er/weights", "x");
  }

  Scratch scratch_;
  const fs::path run_ = scratch_ / "storage/run";
};

TEST_F(RemoveRunTest, NothingIsLeft) {
  EXPECT_EQ(remove_run(run_), Removal::done);
  EXPECT_TRUE(fs::is_empty(scratch_ / "storage"));
  EXPECT_EQ(remove_run(run_), Removal::no_run);
}

TEST_F(RemoveRunTest, LinksAreNotFollowed) {
  spit(scratch_ / "mine/thesis.tex", "x");
  fs::create_directory_symlink(scratch_ / "mine", run_ / "checkpoint_000000/link");
  fs::create_symlink(scratch_ / "mine/thesis.tex", run_ / "file");
  ASSERT_EQ(::mkfifo((run_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(remove_run(run_), Removal::done);
  EXPECT_TRUE(fs::exists(scratch_ / "mine/thesis.tex"));
}

TEST_F(RemoveRunTest, ALinkToARunIsNoRun) {
  fs::create_directory_symlink(run_, scratch_ / "storage/link");
  EXPECT_EQ(remove_run(scratch_ / "storage/link"), Removal::no_run);
  EXPECT_EQ(remove_run(scratch_ / "storage/link/"), Removal::no_run);
  EXPECT_TRUE(fs::exists(run_ / "run.json"));
}

TEST_F(RemoveRunTest, WhatIsNoRunStays) {
  spit(scratch_ / "storage/photos/1.jpg", "x");
  EXPECT_EQ(remove_run(scratch_ / "storage/photos"), Removal::no_run);
  EXPECT_EQ(remove_run(scratch_ / "storage/photos/1.jpg"), Removal::no_run);
  fs::remove(run_ / "run.json");
  fs::create_symlink("logs/rank_0.log", run_ / "run.json");
  EXPECT_EQ(remove_run(run_), Removal::no_run);
  EXPECT_TRUE(fs::exists(scratch_ / "storage/photos/1.jpg"));
  EXPECT_TRUE(fs::exists(run_ / "logs/rank_0.log"));
}

TEST_F(RemoveRunTest, ARunInUseStays) {
  auto lock = sys::DirectoryLock::take(run_);
  EXPECT_EQ(remove_run(run_), Removal::in_use);
  EXPECT_TRUE(fs::exists(run_ / "checkpoint_000000/deep/er/weights"));
  lock.reset();
  EXPECT_EQ(remove_run(run_), Removal::done);
}

TEST_F(RemoveRunTest, LeftoversAreNoRunsAndGoLater) {
  const fs::path left = scratch_ / "storage" / (std::string(kRemovedPrefix) + "17");
  fs::rename(run_, left);
  remove_leftovers(scratch_ / "storage");
  EXPECT_TRUE(fs::exists(left / "run.json")) << "interrupted before its run.json went: still a whole run";
  fs::remove(left / "run.json");
  spit(scratch_ / "storage/other/file", "x");
  {
    const auto lock = sys::DirectoryLock::take(left);
    remove_leftovers(scratch_ / "storage");
    EXPECT_TRUE(fs::exists(left)) << "another process is at it";
  }
  remove_leftovers(scratch_ / "storage");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(scratch_ / "storage/other/file"));
}

TEST_F(RemoveRunTest, WhatCannotBeRemovedIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may remove everything";
  ASSERT_EQ(::chmod((run_ / "checkpoint_000000/deep").c_str(), 0500), 0);
  const std::string message = message_of<StorageError>([&] { remove_run(run_); });
  EXPECT_NE(message.find("deep/er"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(run_));
  const fs::path left = fs::directory_iterator(scratch_ / "storage")->path();
  EXPECT_FALSE(fs::exists(left / "run.json"));
  ASSERT_EQ(::chmod((left / "checkpoint_000000/deep").c_str(), 0700), 0);
}

}  // namespace
}  // namespace lockstep::store
