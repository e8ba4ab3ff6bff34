// The checkpoints of a session.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include "session_harness.h"
#include "store/positions.h"

namespace lockstep::worker {
namespace {

using SessionCheckpoints = WorkerSessionTest;

TEST_F(SessionCheckpoints, WritesRankZerosCheckpointAndTellsWhereItLies) {
  wire::Begin made = rank(0);
  made.first_seq = 3;
  made.score_attribute = "loss";
  begin(made);
  session->report({{"loss", 2}}, Checkpoint::from_dict({{"loss", 1.5}}));
  EXPECT_TRUE(next<wire::Reports>().reports[0].has_checkpoint);
  const auto written = next<wire::CheckpointWritten>();
  EXPECT_EQ(written.partial, "checkpoint_000003.partial");
  EXPECT_EQ(written.score, 1.5);
  ASSERT_EQ(written.files.size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(directory / written.partial / "data.json"));
}

TEST_F(SessionCheckpoints, CheckpointsHoldThePositionsOfDataSets) {
  begin(rank(0));
  EXPECT_FALSE(session->saved_position("train"));
  int row = 0;
  session->keep_position("train", [&row] { return Value{{"position", row}}; });
  session->keep_file("own.bin", {1, 2});
  std::filesystem::path last;
  for (row = 10; row <= 20; row += 10) {
    session->report({}, last.empty() ? Checkpoint::from_dict({{"loss", 1}}) : Checkpoint::from_directory(last));
    EXPECT_TRUE(next<wire::Reports>().reports[0].has_checkpoint);
    const auto written = next<wire::CheckpointWritten>();
    ASSERT_EQ(written.files.size(), 3U);
    last = directory / written.partial;
    const auto saved = Checkpoint::from_directory(last);
    EXPECT_EQ(store::decode_positions(saved.read("lockstep.json")), (Value{{"train", {{"position", row}}}}));
    EXPECT_EQ(saved.read("own.bin"), (Bytes{1, 2}));
    EXPECT_EQ(saved.to_dict(), (Value{{"loss", 1}}));
  }

  session.reset();
  wire::Begin made = rank(0);
  made.checkpoint = last;
  made.storage.clear();
  begin(made);
  EXPECT_EQ(session->saved_position("train"), (Value{{"position", 20}}));
  EXPECT_FALSE(session->saved_position("other"));
  session->keep_position("other", [] { return Value{{"position", 1}}; });
  session->report({}, Checkpoint::from_dict(Value::object()));  // nobody has used "train"
  next<wire::Reports>();
  const auto kept = Checkpoint::from_files(next<wire::CheckpointWritten>().contents);
  EXPECT_EQ(store::decode_positions(kept.read("lockstep.json")),
            (Value{{"train", {{"position", 20}}}, {"other", {{"position", 1}}}}));
}

TEST_F(SessionCheckpoints, AFileOfTheUsersUnderThatNameIsRefused) {
  begin(rank(0));
  std::filesystem::create_directory(directory / "mine");
  std::ofstream(directory / "mine" / "lockstep.json") << "{}";
  EXPECT_THROW(session->report({}, Checkpoint::from_directory(directory / "mine")), ConfigError);
}

TEST_F(SessionCheckpoints, OtherRanksCheckpointsAreNotWritten) {
  begin(rank(1));
  session->report({}, Checkpoint::from_dict({{"loss", 1.5}}));
  EXPECT_FALSE(next<wire::Reports>().reports[0].has_checkpoint);
  session->finish({});
  next<wire::WorkerFinished>();
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(SessionCheckpoints, WithoutStorageTheContentsGoToTheDriver) {
  wire::Begin made = rank(0);
  made.storage.clear();
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  next<wire::Reports>();
  const auto written = next<wire::CheckpointWritten>();
  EXPECT_EQ(Checkpoint::from_files(written.contents).to_dict()["epoch"], 4);
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(SessionCheckpoints, ABrokenDiskIsToldAtTheNextCall) {
  wire::Begin made = rank(0);
  made.storage = directory / "missing" / "deeper";
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  fail_to_store();
  EXPECT_THROW(session->finish({}), StorageError);
  EXPECT_THROW(session->report({}, std::nullopt), StorageError);
}

TEST_F(SessionCheckpoints, NoLaterCheckpointHidesOneThatCouldNotBeWritten) {
  begin(rank(0));
  std::ofstream(directory / "checkpoint_000000.partial") << "in the way";
  const auto first = Checkpoint::from_dict({{"epoch", 0}}), second = Checkpoint::from_dict({{"epoch", 1}});
  session->report({}, first);
  fail_to_store();
  EXPECT_THROW(session->finish({}), StorageError);
  EXPECT_THROW(session->report({}, second), StorageError) << "though its own place is free";
  EXPECT_FALSE(std::filesystem::exists(directory / "checkpoint_000001.partial"));
  session->fail({});
  next<wire::WorkerFailed>();
}

TEST_F(SessionCheckpoints, TheNewestCheckpointIsTheDriversToGive) {
  begin(rank(0));
  session->report({}, std::nullopt);
  next<wire::Reports>();
  session->report({}, Checkpoint::from_dict({{"epoch", 0}}));
  next<wire::Reports>();
  const auto written = next<wire::CheckpointWritten>();
  auto waiting = std::async(std::launch::async, [&] { return session->checkpoint(); });
  EXPECT_EQ(next<wire::CheckpointWanted>().report, 1);
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  driver->send(wire::encode(wire::CheckpointGiven{directory / written.partial, {}, {}}));
  EXPECT_EQ(waiting.get()->to_dict()["epoch"], 0);
}

TEST_F(SessionCheckpoints, EveryRankAsksForTheCheckpointThatItReported) {
  wire::Begin made = rank(1);
  made.storage.clear();
  begin(made);
  session->report({}, Checkpoint::from_dict({{"rank", 1}}));
  next<wire::Reports>();
  auto waiting = std::async(std::launch::async, [&] { return session->checkpoint(); });
  EXPECT_EQ(next<wire::CheckpointWanted>().report, 0);
  driver->send(wire::encode(wire::CheckpointGiven{"", {{"data.json", Bytes{'{', '}'}}}, {}}));
  EXPECT_EQ(waiting.get()->to_dict(), Value::object());
}

TEST_F(SessionCheckpoints, ACheckpointThatCouldNotBeWrittenIsNotWaitedFor) {
  wire::Begin made = rank(0);
  made.storage = directory / "missing" / "deeper";
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  fail_to_store();
  EXPECT_THROW(session->checkpoint(), StorageError);
}

TEST_F(SessionCheckpoints, ACheckpointThatIsRefusedIsNotAnnounced) {
  begin(rank(0));
  const auto source = directory / "source";
  std::filesystem::create_directories(source);
  ASSERT_EQ(mkfifo((source / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(session->report({{"i", 0}}, Checkpoint::from_directory(source)), StorageError);
  std::filesystem::remove(source / "pipe");
  session->report({{"i", 1}}, Checkpoint::from_directory(source));
  const auto reports = next<wire::Reports>();
  ASSERT_EQ(reports.reports.size(), 1U);
  EXPECT_EQ(reports.reports[0].index, 0);
  EXPECT_EQ(next<wire::CheckpointWritten>().partial, "checkpoint_000000.partial");
}

TEST_F(SessionCheckpoints, ACheckpointAloneHasNoMetrics) {
  for (const int number : {0, 1}) {
    begin(rank(number));
    session->deliver(std::nullopt, Checkpoint::from_dict({{"epoch", 4}}));
    const auto reports = next<wire::Reports>();
    ASSERT_EQ(reports.reports.size(), 1U);
    EXPECT_TRUE(reports.reports[0].metrics.empty());
    EXPECT_EQ(reports.reports[0].has_checkpoint, number == 0);
    session.reset();
  }
}

TEST_F(SessionCheckpoints, WhatWasReportedIsHandedOverBeforeItIsSettled) {
  begin(rank(0));
  session->report({{"i", 0}}, Checkpoint::from_dict({{"epoch", 4}}));
  driver->send(wire::encode(wire::Settle{}));
  next<wire::Reports>();
  EXPECT_EQ(next<wire::CheckpointWritten>().report, 0);
  next<wire::Settled>();
}

TEST_F(SessionCheckpoints, WhatWasReportedOutlivesTheWorker) {
  auto [mine, theirs] = sys::socket_pair();
  driver.emplace(std::move(mine));
  driver->send(wire::encode(rank(0)));
  const pid_t child = ::fork();
  if (child == 0) {
    driver.reset();
    WorkerSession worker(theirs.release());
    const std::vector<float> weights(100'000, 7);
    worker.report({{"i", 0}}, Checkpoint::from_dict({{"w", {{"$tensor", "w"}}}},
                                                    {{"w", "F32", {100'000}, std::as_bytes(std::span(weights))}}));
    ::kill(::getpid(), SIGKILL);
  }
  theirs.reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(next<wire::Reports>().reports.at(0).has_checkpoint);
  const auto written = next<wire::CheckpointWritten>();
  const auto saved = Checkpoint::from_directory(directory / written.partial);
  const std::vector<float> expected(100'000, 7);
  ASSERT_EQ(saved.tensors().size(), 1U);
  EXPECT_TRUE(std::ranges::equal(saved.tensors()[0].bytes, std::as_bytes(std::span(expected))));
}

TEST_F(SessionCheckpoints, TwoCheckpointsMayBeOnTheirWayAndTheNextOneWaits) {
  begin(rank(0));
  const auto checkpoint = Checkpoint::from_dict({{"epoch", 0}});
  session->report({}, checkpoint);
  session->report({}, checkpoint);
  auto third = std::async(std::launch::async, [&] { session->report({}, checkpoint); });
  EXPECT_EQ(third.wait_for(50ms), std::future_status::timeout);
  EXPECT_EQ(next_but_reports<wire::CheckpointWritten>().partial, "checkpoint_000000.partial");
  third.get();
  EXPECT_EQ(next_but_reports<wire::CheckpointWritten>().partial, "checkpoint_000001.partial");
  EXPECT_EQ(next_but_reports<wire::CheckpointWritten>().partial, "checkpoint_000002.partial");
  session->finish({});
}

TEST_F(SessionCheckpoints, AProcessThatMayNotHaveSharedMemoryWritesItself) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  begin(rank(0));
  rlimit small = before;
  small.rlim_cur = 100'000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  ::setrlimit(RLIMIT_FSIZE, &before);
  next<wire::Reports>();
  const auto written = next<wire::CheckpointWritten>();
  EXPECT_EQ(Checkpoint::from_directory(directory / written.partial).to_dict()["epoch"], 4);
}

}  // namespace
}  // namespace lockstep::worker
