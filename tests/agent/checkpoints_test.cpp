// Checkpoints that workers hand over: the agent writes them.

#include <filesystem>
#include <fstream>

#include "agent_harness.h"
#include "store/hash.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

class CheckpointsTest : public AgentHarness {
 protected:
  void SetUp() override {
    AgentHarness::SetUp();
    directory = fs::path(testing::TempDir()) / ("held_" + std::to_string(::getpid()) + "_" +
                                                testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(directory);
    fs::permissions(directory, fs::perms::owner_all);
    configure();
  }
  void TearDown() override {
    AgentHarness::TearDown();
    fs::remove_all(directory);
  }

  Value command(int report, std::size_t size = 1000) const {
    return cmd("hand_over", {{"report", report},
                             {"storage", directory.string()},
                             {"partial", "checkpoint_00000" + std::to_string(report) + ".partial"},
                             {"size", size}});
  }

  /// What the driver was told of written checkpoints so far, in order.
  std::vector<wire::CheckpointWritten> written(std::size_t rank = 0) const {
    std::vector<wire::CheckpointWritten> found;
    for (const Bytes& message : from_worker_.at(rank)) {
      auto decoded = wire::decode<wire::WorkerToDriver>(message);
      if (auto* each = std::get_if<wire::CheckpointWritten>(&decoded)) found.push_back(std::move(*each));
    }
    return found;
  }

  void expect_whole(const wire::CheckpointWritten& checkpoint, std::size_t size) const {
    ASSERT_EQ(checkpoint.files.size(), 1U);
    const std::string expected(size, 'x');
    EXPECT_EQ(checkpoint.files[0].name, "data");
    EXPECT_EQ(checkpoint.files[0].xxh3_128, store::hash_of(std::as_bytes(std::span(expected))));
    std::ifstream in(directory / checkpoint.partial / "data", std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), expected);
  }

  fs::path directory;
};

TEST_F(CheckpointsTest, AreWrittenAndToldToDriverAndWorker) {
  run({command(0), cmd("print_stored"), command(1), cmd("print_stored")});
  EXPECT_EQ(log_[0], "stored: .\nstored: .\n");
  ASSERT_EQ(written().size(), 2U);
  for (const int report : {0, 1}) {
    EXPECT_EQ(written()[static_cast<std::size_t>(report)].report, report);
    expect_whole(written()[static_cast<std::size_t>(report)], 1000);
  }
}

TEST_F(CheckpointsTest, OutliveAWorkerThatIsKilledAtOnce) {
  constexpr std::size_t kSize = std::size_t{32} << 20;
  const auto exited = run({command(0, kSize), command(1, kSize), cmd("signal", SIGKILL)});
  EXPECT_EQ(exited.signal, SIGKILL);
  ASSERT_EQ(written().size(), 2U);
  for (const auto& each : written()) expect_whole(each, kSize);
  // They were told before the end of the rank.
  const auto is_exit = [](const auto& message) { return std::holds_alternative<wire::WorkerExited>(message); };
  const auto is_from = [](const auto& message) { return std::holds_alternative<wire::FromWorker>(message); };
  const auto exit_at = std::ranges::find_if(seen_, is_exit);
  EXPECT_EQ(std::ranges::find_if(exit_at, seen_.end(), is_from), seen_.end());
}

TEST_F(CheckpointsTest, AreWrittenWhenTheAttemptIsStopped) {
  start(0, {{command(0, std::size_t{32} << 20), cmd("print", "handed\n"), cmd("wait")}});
  wait_for_log(0, "handed");
  send(wire::StopAttempt{0, false, 0});
  expect<wire::AttemptEnded>();
  ASSERT_EQ(written().size(), 1U);
  expect_whole(written()[0], std::size_t{32} << 20);
}

TEST_F(CheckpointsTest, ADiskThatRefusesIsToldToTheWorkerAndHidesNoLaterOne) {
  fs::remove_all(directory);
  run({command(0), cmd("print_stored"), command(1), cmd("print_stored")});
  EXPECT_TRUE(written().empty());
  const std::string first = log_[0].substr(0, log_[0].find('\n'));
  EXPECT_NE(first.find("No such file or directory"), std::string::npos) << first;
  EXPECT_EQ(log_[0], first + "\n" + first + "\n");
}

TEST_F(CheckpointsTest, OneThatIsLostWithItsWorkerIsInTheLog) {
  fs::remove_all(directory);
  run({command(0), cmd("signal", SIGKILL)});
  EXPECT_NE(log_[0].find("a checkpoint is lost"), std::string::npos) << log_[0];
}

TEST_F(CheckpointsTest, WithoutItsMemoryItIsAnErrorOfTheWorkerAlone) {
  Value without = command(0);
  without[1]["without"] = true;
  run({without, cmd("print_stored")});
  EXPECT_NE(log_[0].find("did not arrive"), std::string::npos) << log_[0];
}

TEST_F(CheckpointsTest, NobodyWaitsForThemWhenTheDriverIsGone) {
  start(0, {{command(0, std::size_t{256} << 20), cmd("print", "handed\n"), cmd("wait")}});
  wait_for_log(0, "handed");
  disconnect();
  control_.reset();
  expect_end(agent_.pidfd.get(), 10s, "the agent");
}

}  // namespace
}  // namespace lockstep::agent
