#include "driver/preemption.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep::driver {
namespace {

class PreemptionWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    place_ = std::filesystem::path(testing::TempDir()) /
             ("notice " + std::to_string(::getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove(place_);
  }
  void TearDown() override { std::filesystem::remove(place_); }

  static bool waits(PreemptionWatch& watch, int milliseconds) {
    pollfd item{watch.fd(), POLLIN, 0};
    return ::poll(&item, 1, milliseconds) == 1;
  }

  std::filesystem::path place_;
};

TEST_F(PreemptionWatchTest, SeesAFileThatAppears) {
  PreemptionWatch watch("file:" + place_.string());
  EXPECT_FALSE(waits(watch, 50));
  std::ofstream(place_) << "";
  ASSERT_TRUE(waits(watch, 20'000));
  const auto notice = watch.take();
  EXPECT_EQ(notice.what, "the file " + place_.string() + " is there");
  EXPECT_FALSE(notice.left);
}

TEST_F(PreemptionWatchTest, ANumberInItIsTheTimeThatIsLeft) {
  std::ofstream(place_) << " 12.5\n";
  PreemptionWatch watch("file:" + place_.string());
  ASSERT_TRUE(waits(watch, 20'000));
  EXPECT_EQ(watch.take().left, Seconds{12.5});
}

TEST_F(PreemptionWatchTest, ACommandCountsIfItEndsWithZero) {
  PreemptionWatch watch("test -e '" + place_.string() + "' && echo 7");
  EXPECT_FALSE(waits(watch, 50));
  std::ofstream(place_) << "";
  ASSERT_TRUE(waits(watch, 20'000));
  EXPECT_EQ(watch.take().left, Seconds{7});
}

TEST_F(PreemptionWatchTest, ATextThatIsNoNumberIsNoTime) {
  PreemptionWatch watch("echo {\"action\": 12}");
  ASSERT_TRUE(waits(watch, 20'000));
  EXPECT_FALSE(watch.take().left);
}

TEST_F(PreemptionWatchTest, WatchesNothingUnlessItIsTold) { EXPECT_EQ(PreemptionWatch("").fd(), -1); }

TEST(PreemptionNotice, TermIsOneWhereItIsExpected) {
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  RunConfig run;
  EXPECT_TRUE(is_preemption_notice(SIGUSR1, run));
  EXPECT_FALSE(is_preemption_notice(SIGTERM, run));
  EXPECT_FALSE(is_preemption_notice(SIGINT, run));
  ::setenv("SLURM_JOB_ID", "7", 1);
  EXPECT_TRUE(is_preemption_notice(SIGTERM, run));
  ::unsetenv("SLURM_JOB_ID");
  run.preemption = "/run/preempted";
  EXPECT_TRUE(is_preemption_notice(SIGTERM, run));
  EXPECT_FALSE(is_preemption_notice(SIGINT, run));
}

}  // namespace
}  // namespace lockstep::driver
