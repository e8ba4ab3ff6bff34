#include "agent/memory_kills.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "agent/attempt.h"

namespace lockstep::agent {
namespace {

class MemoryKillsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MemoryKills kills() const { return {(root_ / "proc").string(), (root_ / "cgroup").string()}; }

  std::filesystem::path root_;
};

TEST_F(MemoryKillsTest, AreReadFromTheControlGroup) {
  put("proc/self/cgroup", "0::/jobs/a\n");
  put("proc/vmstat", "nr_free_pages 5\noom_kill 100\n");
  put("cgroup/jobs/a/memory.events", "low 0\noom 1\noom_kill 7\noom_group_kill 0\n");
  const auto counter = kills();
  EXPECT_EQ(counter.count(), 7u);
  put("cgroup/jobs/a/memory.events", "oom_kill 8\n");
  EXPECT_EQ(counter.count(), 8u);
}

TEST_F(MemoryKillsTest, AreReadFromAnOldControlGroup) {
  put("proc/self/cgroup", "5:cpu:/x\n4:memory:/jobs/b\n0::/\n");
  put("cgroup/memory/jobs/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(kills().count(), 3u);
}

TEST_F(MemoryKillsTest, AreThoseOfTheMachineOtherwise) {
  put("proc/self/cgroup", "0::/jobs/a\n");
  put("proc/vmstat", "oom_kill 42\n");
  EXPECT_EQ(kills().count(), 42u);
}

TEST_F(MemoryKillsTest, AreZeroWhereNothingTells) { EXPECT_EQ(kills().count(), 0u); }

TEST(KilledForMemory, NeedsAKillThatIsNotOurs) {
  EXPECT_TRUE(killed_for_memory({0, SIGKILL}, false, 1, 2));
  EXPECT_FALSE(killed_for_memory({0, SIGKILL}, true, 1, 2));
  EXPECT_FALSE(killed_for_memory({0, SIGKILL}, false, 2, 2));
  EXPECT_FALSE(killed_for_memory({0, SIGSEGV}, false, 1, 2));
  EXPECT_FALSE(killed_for_memory({1, 0}, false, 1, 2));
}

}  // namespace
}  // namespace lockstep::agent
