// Checkpoints that are in memory, and those of them that come to disk.

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "../store/scratch.h"
#include "driver/checkpoint_keeper.h"
#include "store/hash.h"
#include "sys/shared_memory.h"

namespace lockstep::driver {
namespace {

namespace fs = std::filesystem;

class MemoryCheckpointsTest : public ::testing::Test {
 protected:
  MemoryCheckpointsTest() {
    fs::create_directories(run_.path());
    keeper_.load();
  }

  static CheckpointConfig every(int nth) {
    CheckpointConfig config;
    config.persist_every = nth;
    return config;
  }

  wire::CheckpointWritten part(int report, const std::string& text) {
    sys::SharedMemory& memory = memories_[report];
    memory.grow(text.size());
    std::memcpy(memory.data(), text.data(), text.size());
    wire::CheckpointWritten written;
    written.report = report;
    written.memory = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.fd());
    written.files = {{"x", static_cast<std::int64_t>(text.size()), store::hash_of(std::as_bytes(std::span(text)))}};
    written.offsets = {0};
    return written;
  }
  /// Rank 0 of `attempt` has reported a checkpoint that is in memory.
  int commit(int report, const std::string& text, int attempt = 0) {
    CheckpointPart made;
    made.written = part(report, text);
    return keeper_.commit({.report = report, .parts = {made}, .metrics = {{"report", report}}}, attempt, 1);
  }
  /// What the agent has written to disk of it.
  wire::CheckpointWritten on_disk(int report, const std::string& text) {
    wire::CheckpointWritten written = part(report, text);
    written.memory.clear();
    written.persists = true;
    written.partial = "checkpoint_000000_report_00000" + std::to_string(report) + ".partial";
    fs::create_directories(run_.path() / written.partial);
    std::ofstream(run_.path() / written.partial / "x") << text;
    return written;
  }
  static std::string text_of(const Checkpoint& checkpoint) {
    const Bytes bytes = checkpoint.read("x");
    return {bytes.begin(), bytes.end()};
  }

  Scratch scratch_;
  store::RunDirectory run_{scratch_ / "run"};
  std::map<int, sys::SharedMemory> memories_;
  CheckpointKeeper keeper_{run_, every(3), [](const std::string&) {}};
};

TEST_F(MemoryCheckpointsTest, TheLatestIsReadFromMemory) {
  EXPECT_EQ(commit(0, "zero"), 0);
  EXPECT_EQ(commit(1, "one"), 1);
  EXPECT_EQ(text_of(*keeper_.latest()), "one");
  EXPECT_FALSE(keeper_.latest()->path());
  EXPECT_EQ((*keeper_.latest()->metadata())["metrics"]["report"], 1);
  EXPECT_TRUE(run_.checkpoints().empty());
  memories_.clear();  // the worker and the agent are dead
  EXPECT_EQ(text_of(*keeper_.latest()), "one");
  const auto memory = keeper_.latest_memory();
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->path.starts_with("/proc/" + std::to_string(::getpid())));
  EXPECT_EQ(memory->files, (std::vector<wire::HeldFile>{{"x", 0, 3}}));
}

TEST_F(MemoryCheckpointsTest, TheNewestTwoStay) {
  for (int report = 0; report < 5; ++report) commit(report, std::to_string(report));
  EXPECT_EQ(keeper_.take_released(0), (std::vector{0, 1, 2}));
  EXPECT_TRUE(keeper_.take_released(0).empty());
  EXPECT_THROW(keeper_.at(2), InternalError);
  EXPECT_EQ(text_of(keeper_.at(3).first), "3");
}

TEST_F(MemoryCheckpointsTest, WhatAStartingWorkerOpensStaysUntilItHas) {
  commit(0, "zero");
  keeper_.begin_attempt(2);
  for (int report = 10; report < 14; ++report) commit(report, std::to_string(report), 1);
  EXPECT_EQ(text_of(keeper_.at(0).first), "zero");
  keeper_.opened(0);
  keeper_.opened(1);
  commit(14, "14", 1);
  EXPECT_THROW(keeper_.at(0), InternalError);
  EXPECT_EQ(keeper_.take_released(1), (std::vector{10, 11, 12})) << "only of the attempt that runs";
}

TEST_F(MemoryCheckpointsTest, EveryThirdIsCommittedToDiskWhenItIsThere) {
  for (int report = 0; report < 3; ++report) commit(report, std::to_string(report));
  keeper_.persist(on_disk(2, "2"), 0);
  EXPECT_EQ(run_.checkpoints(), std::vector{2});
  EXPECT_NO_THROW(keeper_.at(2).first.verify());
  EXPECT_TRUE(keeper_.latest()->path());
  EXPECT_TRUE(keeper_.latest_memory()) << "a restart still takes it from there";
}

TEST_F(MemoryCheckpointsTest, WhatWasCheckedInMemoryIsValidatedOnDisk) {
  for (int report = 0; report < 4; ++report) commit(report, std::to_string(report));
  for (const int seq : {2, 3}) EXPECT_TRUE(keeper_.add_metrics(seq, {{"accuracy", 0.5}}));
  keeper_.persist(on_disk(2, "2"), 0);
  keeper_.persist_latest();
  ASSERT_EQ(run_.checkpoints(), (std::vector{2, 3}));
  for (const int seq : {2, 3}) {
    const store::Manifest manifest = run_.checkpoint(seq).manifest;
    EXPECT_TRUE(manifest.validated) << seq;
    EXPECT_EQ(manifest.metrics, (Value{{"report", seq}, {"accuracy", 0.5}}));
  }
}

TEST_F(MemoryCheckpointsTest, AlsoAfterItWasDroppedFromMemory) {
  for (int report = 0; report < 6; ++report) commit(report, std::to_string(report));
  EXPECT_THROW(keeper_.at(2), InternalError);
  keeper_.persist(on_disk(2, "2"), 0);
  EXPECT_EQ(text_of(keeper_.at(2).first), "2");
  EXPECT_EQ(keeper_.at(2).second["report"], 2);
  EXPECT_EQ(text_of(*keeper_.latest()), "5") << "the order is that of the reports";
  EXPECT_EQ(keeper_.best().size(), 1U);
}

TEST_F(MemoryCheckpointsTest, OneOfAnotherAttemptIsNotCommitted) {
  for (int report = 0; report < 3; ++report) commit(report, std::to_string(report));
  keeper_.persist(on_disk(2, "2"), 1);
  EXPECT_TRUE(run_.checkpoints().empty());
}

TEST_F(MemoryCheckpointsTest, TheLatestIsWrittenInTheEnd) {
  commit(0, "zero");
  commit(1, "one");
  memories_.clear();
  keeper_.persist_latest();
  EXPECT_EQ(run_.checkpoints(), std::vector{1});
  EXPECT_NO_THROW(keeper_.latest()->verify());
  EXPECT_EQ(text_of(Checkpoint::from_directory(run_.checkpoint_path(1))), "one");
  keeper_.persist_latest();
  EXPECT_EQ(run_.checkpoints(), std::vector{1});
}

TEST_F(MemoryCheckpointsTest, AnUnchangedOneOnDiskIsNotReadAgainAndAChangedOneIs) {
  std::vector<std::string> warnings;
  CheckpointKeeper keeper(run_, {}, [&](const std::string& text) { warnings.push_back(text); });
  keeper.load();
  for (int report = 0; report < 2; ++report) {
    CheckpointPart made;
    made.written = on_disk(report, "text");
    made.written.persists = false;
    keeper.commit({.report = report, .parts = {made}, .metrics = Value::object()}, 0, 1);
  }
  keeper.begin_attempt(1);
  EXPECT_TRUE(warnings.empty());
  const auto file = run_.checkpoint_path(1) / "x";
  const auto before = fs::last_write_time(file);
  std::ofstream(file) << "tex_";
  fs::last_write_time(file, before + std::chrono::seconds(1));
  keeper.begin_attempt(1);
  EXPECT_EQ(warnings.size(), 1U);
  EXPECT_EQ((*keeper.latest()->metadata())["seq"], 0);
}

}  // namespace
}  // namespace lockstep::driver
