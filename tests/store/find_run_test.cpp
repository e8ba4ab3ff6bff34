#include "store/find_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

/// Each test has a storage path and a current directory of its own.
class FindRunTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::create_directories(scratch_ / "cwd");
    fs::current_path(scratch_ / "cwd");
    ::setenv("LOCKSTEP_STORAGE_PATH", (scratch_ / "storage").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("LOCKSTEP_STORAGE_PATH");
    fs::current_path(before_);
  }

  fs::path make_run(const std::string& path) {
    spit(scratch_ / (path + "/run.json"), "{}");
    return scratch_ / path;
  }

  Scratch scratch_;
  fs::path before_;
};

TEST_F(FindRunTest, APathWinsOverAName) {
  const fs::path stored = make_run("storage/digits");
  EXPECT_EQ(find_run("digits"), stored);
  fs::create_directory("digits");
  EXPECT_EQ(find_run("digits"), stored) << "a directory without a run is no run";
  make_run("cwd/digits");
  EXPECT_EQ(find_run("digits"), "digits");
  EXPECT_EQ(find_run(stored), stored);
}

TEST_F(FindRunTest, OnlyWhatIsBelowTheStoragePathIsAName) {
  make_run("outside");
  make_run("storage/experiment/trial");
  EXPECT_EQ(find_run("../outside"), "../outside") << "from the current directory";
  fs::create_directories("deep/er");
  fs::current_path("deep/er");
  EXPECT_FALSE(find_run("../outside"));
  EXPECT_FALSE(find_run(""));
  EXPECT_FALSE(find_run("."));
  EXPECT_FALSE(find_run("nobody"));
  EXPECT_FALSE(find_run("/digits"));
  EXPECT_EQ(find_run("experiment/trial"), scratch_ / "storage/experiment/trial");
}

TEST_F(FindRunTest, ARunIsResumedOnlyIfItIsAskedFor) {
  const fs::path stored = make_run("storage/digits");
  RunConfig run;
  run.name = "digits";
  EXPECT_FALSE(run_to_resume(run));
  run.resume = "auto";
  EXPECT_EQ(run_to_resume(run), stored);
  run.storage_path = scratch_ / "elsewhere";
  EXPECT_FALSE(run_to_resume(run)) << "it is looked for where the new run would be";
  run.storage_path.clear();
  run.name = "nobody";
  EXPECT_FALSE(run_to_resume(run));
}

TEST_F(FindRunTest, APathNamesTheRunToResume) {
  const fs::path stored = make_run("storage/digits");
  make_run("cwd/here");
  RunConfig run;
  run.resume = "digits";
  EXPECT_EQ(run_to_resume(run), stored);
  run.resume = "here/";
  EXPECT_EQ(run_to_resume(run), fs::canonical(scratch_ / "cwd/here"));
  run.resume = "nobody";
  EXPECT_THROW(run_to_resume(run), ConfigError);
}

TEST_F(FindRunTest, WithoutAHomeOnlyPathsNameRuns) {
  make_run("cwd/here");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::unsetenv("LOCKSTEP_STORAGE_PATH");
  ::unsetenv("HOME");
  EXPECT_EQ(find_run("here"), "here");
  EXPECT_FALSE(find_run("nobody"));
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace lockstep::store
