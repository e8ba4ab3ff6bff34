#include "worker/worker_session.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include "store/part_writer.h"
#include "store/positions.h"
#include "sys/shared_memory.h"
#include "sys/sockets.h"
#include "wire/codec.h"
#include "wire/handover.h"

namespace lockstep::worker {
namespace {

/// A session whose driver is this test.
class WorkerSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    directory =
        std::filesystem::path(testing::TempDir()) /
        ("session_" + std::to_string(getpid()) + "_" + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory);
  }
  void TearDown() override {
    session.reset();
    std::filesystem::remove_all(directory);
  }

  void begin(wire::Begin begin) {
    auto [mine, theirs] = sys::socket_pair();
    driver.emplace(std::move(mine));
    driver->send(wire::encode(begin));
    session.emplace(theirs.release());
  }

  wire::Begin rank(int number, int world_size = 2) {
    wire::Begin made;
    made.rank = number;
    made.world_size = world_size;
    made.storage = directory;
    made.heartbeat_interval = 60;
    return made;
  }

  /// The next message for the driver. A checkpoint that is handed over is stored first, as the agent does.
  wire::WorkerToDriver receive() {
    for (;;) {
      const auto frame = driver->receive(now() + 10s);
      if (!frame) throw std::runtime_error("nothing came");
      if (!wire::holds<wire::CheckpointHeld>(*frame)) return wire::decode<wire::WorkerToDriver>(*frame);
      const auto held = wire::decode_one<wire::CheckpointHeld>(*frame);
      if (const auto written = store(held)) return *written;
    }
  }
  std::optional<wire::CheckpointWritten> store(const wire::CheckpointHeld& held) {
    const sys::Descriptor fd = driver->take_descriptor();
    const wire::HeldFile& last = held.files.back();
    const auto memory = sys::map_shared(fd.get(), static_cast<std::uint64_t>(last.offset + last.size));
    std::vector<store::MemoryFile> files;
    for (const auto& [name, offset, size] : held.files)
      files.push_back({name, memory.bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size))});
    wire::CheckpointWritten written{held.report, held.partial, {}, {}, held.score};
    std::string error;
    try {
      store::PartWriter writer(sys::files(), std::filesystem::path(held.storage) / held.partial);
      written.files = writer.write_files(files);
    } catch (const StorageError& problem) {
      error = problem.what();
    }
    try {
      driver->send(wire::encode(wire::CheckpointStored{held.report, error}));
    } catch (const EngineError&) {
      // The worker is dead.
    }
    return error.empty() ? std::optional(written) : std::nullopt;
  }
  /// Stores one checkpoint, which fails. Drops what comes before it.
  void fail_to_store() {
    for (;;) {
      const auto frame = driver->receive(now() + 10s).value();
      if (!wire::holds<wire::CheckpointHeld>(frame)) continue;
      EXPECT_FALSE(store(wire::decode_one<wire::CheckpointHeld>(frame)));
      return;
    }
  }

  template <class M>
  M next() {
    for (;;) {
      auto message = receive();
      if (auto* found = std::get_if<M>(&message)) return std::move(*found);
      if (!std::holds_alternative<wire::Heartbeat>(message)) throw std::runtime_error("another message came");
    }
  }

  template <class M>
  M next_but_reports() {
    for (;;) {
      auto message = receive();
      if (auto* found = std::get_if<M>(&message)) return std::move(*found);
    }
  }

  std::filesystem::path directory;
  std::optional<wire::Channel> driver;
  std::optional<WorkerSession> session;
};

TEST_F(WorkerSessionTest, KnowsItsPlaceAndReports) {
  begin(rank(1));
  EXPECT_EQ(session->world_rank(), 1);
  EXPECT_EQ(session->world_size(), 2);
  EXPECT_FALSE(session->checkpoint());
  session->start();
  const auto ready = next<wire::WorkerReady>();
  EXPECT_EQ(ready.pid, getpid());
  EXPECT_FALSE(ready.kept);
  session->report({{"loss", 0.5}}, std::nullopt);
  const auto reports = next<wire::Reports>();
  ASSERT_EQ(reports.reports.size(), 1U);
  EXPECT_EQ(wire::decode_value(reports.reports[0].metrics), (Value{{"loss", 0.5}}));
}

TEST_F(WorkerSessionTest, KnowsTheAddressOfEveryRanksNode) {
  wire::Begin made = rank(3, 4);
  made.peers = {{"10.0.0.1", 2}, {"10.0.0.2", 1}, {"10.0.0.1", 1}};
  begin(made);
  std::vector<std::string> addresses;
  for (int each = 0; each < 4; ++each) addresses.push_back(session->node_address(each));
  EXPECT_EQ(addresses, (std::vector<std::string>{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"}));
  for (const int none : {-1, 4}) {
    try {
      session->node_address(none);
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), "[session] there is no rank " + std::to_string(none) + "; world_size is 4");
    }
  }
}

TEST_F(WorkerSessionTest, WritesRankZerosCheckpointAndTellsWhereItLies) {
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

TEST_F(WorkerSessionTest, CheckpointsHoldThePositionsOfDataSets) {
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

TEST_F(WorkerSessionTest, AFileOfTheUsersUnderThatNameIsRefused) {
  begin(rank(0));
  std::filesystem::create_directory(directory / "mine");
  std::ofstream(directory / "mine" / "lockstep.json") << "{}";
  EXPECT_THROW(session->report({}, Checkpoint::from_directory(directory / "mine")), ConfigError);
}

TEST_F(WorkerSessionTest, OtherRanksCheckpointsAreNotWritten) {
  begin(rank(1));
  session->report({}, Checkpoint::from_dict({{"loss", 1.5}}));
  EXPECT_FALSE(next<wire::Reports>().reports[0].has_checkpoint);
  session->finish({});
  next<wire::WorkerFinished>();
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(WorkerSessionTest, WithoutStorageTheContentsGoToTheDriver) {
  wire::Begin made = rank(0);
  made.storage.clear();
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  next<wire::Reports>();
  const auto written = next<wire::CheckpointWritten>();
  EXPECT_EQ(Checkpoint::from_files(written.contents).to_dict()["epoch"], 4);
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(WorkerSessionTest, ABrokenDiskIsToldAtTheNextCall) {
  wire::Begin made = rank(0);
  made.storage = directory / "missing" / "deeper";
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  fail_to_store();
  EXPECT_THROW(session->finish({}), StorageError);
  EXPECT_THROW(session->report({}, std::nullopt), StorageError);
}

TEST_F(WorkerSessionTest, NoLaterCheckpointHidesOneThatCouldNotBeWritten) {
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

TEST_F(WorkerSessionTest, ABarrierWaitsForTheDriversWord) {
  begin(rank(1));
  auto waiting = std::async(std::launch::async, [&] { session->barrier(Seconds{5}); });
  EXPECT_EQ(next<wire::MeetingEntered>().meeting, 0);
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  driver->send(wire::encode(wire::MeetingDone{0, "", {}}));
  waiting.get();
}

TEST_F(WorkerSessionTest, AFailedMeetingThrowsWithTheMissingRanks) {
  begin(rank(1));
  auto waiting = std::async(std::launch::async, [&] { session->barrier(Seconds{5}); });
  next<wire::MeetingEntered>();
  driver->send(wire::encode(wire::MeetingDone{0, "missing: rank 0", {}}));
  EXPECT_THROW(waiting.get(), TimeoutError);
}

TEST_F(WorkerSessionTest, BroadcastGivesRankZerosBytes) {
  begin(rank(1));
  auto waiting = std::async(std::launch::async, [&] { return session->broadcast_from_rank_zero({9}, Seconds{5}); });
  EXPECT_TRUE(next<wire::MeetingEntered>().value.empty());
  driver->send(wire::encode(wire::MeetingDone{0, "", {1, 2}}));
  EXPECT_EQ(waiting.get(), (Bytes{1, 2}));
}

TEST_F(WorkerSessionTest, TheNewestCheckpointIsTheDriversToGive) {
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

TEST_F(WorkerSessionTest, EveryRankAsksForTheCheckpointThatItReported) {
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

TEST_F(WorkerSessionTest, ACheckpointThatCouldNotBeWrittenIsNotWaitedFor) {
  wire::Begin made = rank(0);
  made.storage = directory / "missing" / "deeper";
  begin(made);
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  fail_to_store();
  EXPECT_THROW(session->checkpoint(), StorageError);
}

TEST_F(WorkerSessionTest, ACheckpointThatIsRefusedIsNotAnnounced) {
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

TEST_F(WorkerSessionTest, ACheckpointAloneHasNoMetrics) {
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

TEST_F(WorkerSessionTest, AFailureComesAfterWhatWasReported) {
  begin(rank(0));
  session->report({{"a", 1}}, std::nullopt);
  Failure failure;
  failure.message = "boom";
  session->fail(failure);
  next<wire::Reports>();
  EXPECT_EQ(next<wire::WorkerFailed>().failure["message"], "boom");
}

TEST_F(WorkerSessionTest, WhatWasReportedIsHandedOverBeforeItIsSettled) {
  begin(rank(0));
  session->report({{"i", 0}}, Checkpoint::from_dict({{"epoch", 4}}));
  driver->send(wire::encode(wire::Settle{}));
  next<wire::Reports>();
  EXPECT_EQ(next<wire::CheckpointWritten>().report, 0);
  next<wire::Settled>();
}

TEST_F(WorkerSessionTest, WhatWasReportedOutlivesTheWorker) {
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

TEST_F(WorkerSessionTest, TwoCheckpointsMayBeOnTheirWayAndTheNextOneWaits) {
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

TEST_F(WorkerSessionTest, AProcessThatMayNotHaveSharedMemoryWritesItself) {
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

TEST_F(WorkerSessionTest, EndsAfterTheReportThatTheDriverChooses) {
  begin(rank(0));
  session->report({{"i", 0}}, std::nullopt);
  next<wire::Reports>();
  session->request_stop();
  session->request_stop();
  next<wire::StopWanted>();
  driver->send(wire::encode(wire::HoldReports{}));
  EXPECT_EQ(next<wire::ReportsHeld>().reports, 2);
  driver->send(wire::encode(wire::EndAfter{3}));
  EXPECT_NO_THROW(session->report({{"i", 1}}, std::nullopt));
  EXPECT_THROW(session->report({{"i", 2}}, std::nullopt), StopTraining);
  EXPECT_TRUE(session->should_stop());
  EXPECT_NO_THROW(session->report({{"i", 3}}, std::nullopt)) << "it has asked, and ends by itself";
}

TEST_F(WorkerSessionTest, AnInterruptOfTheDriverIsKnownBeforeTheSignalComes) {
  static std::atomic<int> seen;
  static WorkerSession* running;
  begin(rank(0));
  EXPECT_FALSE(session->stopping());
  seen = 0;
  running = &*session;
  const auto before = std::signal(SIGINT, [](int) { seen = running->stopping() ? 1 : -1; });
  driver->send(wire::encode(wire::Interrupt{}));
  for (const Instant end = now() + 10s; seen == 0 && now() < end;) std::this_thread::yield();
  std::signal(SIGINT, before);
  EXPECT_EQ(seen, 1);
}

TEST_F(WorkerSessionTest, ACheckpointTellsWhetherItWasMadeAfterANotice) {
  begin(rank(0));
  session->report({}, Checkpoint::from_dict({{"epoch", 4}}));
  EXPECT_FALSE(session->should_checkpoint());
  EXPECT_FALSE(next<wire::Reports>().reports.at(0).preempted);
  driver->send(wire::encode(wire::Preempt{30}));
  for (const Instant end = now() + 10s; !session->should_checkpoint() && now() < end;) std::this_thread::yield();
  next<wire::CheckpointWritten>();
  session->report({}, Checkpoint::from_dict({{"epoch", 5}}));
  EXPECT_TRUE(next<wire::Reports>().reports.at(0).preempted);
}

TEST_F(WorkerSessionTest, AnswersCallsUntilTheyAreOver) {
  wire::Begin made = rank(0);
  made.calls = true;
  begin(made);
  const auto twice = [](const Bytes& payload) { return Bytes{static_cast<std::uint8_t>(2 * payload.at(0))}; };
  auto served = std::async(std::launch::async, [&] { session->serve_calls(twice); });
  next<wire::CallsAwaited>();
  for (const std::uint8_t number : {3, 4}) {
    driver->send(wire::encode(wire::Call{{number}}));
    EXPECT_EQ(next<wire::CallDone>().value, (Bytes{static_cast<std::uint8_t>(2 * number)}));
  }
  driver->send(wire::encode(wire::CallsOver{}));
  served.get();
  auto again = std::async(std::launch::async, [&] { session->serve_calls(twice); });
  next<wire::CallsAwaited>();
  driver->send(wire::encode(wire::CallsOver{}));
  again.get();
}

TEST_F(WorkerSessionTest, WaitsForNoCallsUnlessItIsTold) {
  begin(rank(0));
  session->serve_calls([](const Bytes& payload) { return payload; });
  session->start();
  next<wire::WorkerReady>();
}

TEST_F(WorkerSessionTest, AnInterruptEndsTheWaitForCalls) {
  wire::Begin made = rank(0);
  made.calls = true;
  std::signal(SIGINT, SIG_IGN);
  begin(made);
  auto served = std::async(std::launch::async, [&] { session->serve_calls([](const Bytes&) { return Bytes{}; }); });
  next<wire::CallsAwaited>();
  driver->send(wire::encode(wire::Interrupt{}));
  served.get();
  EXPECT_TRUE(session->stopping());
  std::signal(SIGINT, SIG_DFL);
}

TEST_F(WorkerSessionTest, AKeptOneBeginsAnew) {
  wire::Begin first = rank(0);
  first.keep = true;
  first.heartbeat_interval = 0.001;
  begin(first);
  session->report({{"i", 0}}, std::nullopt);
  session->finish({1, 2});
  EXPECT_EQ(next_but_reports<wire::WorkerFinished>().value, (Bytes{1, 2}));
  EXPECT_FALSE(driver->receive(now() + 50ms)) << "nothing follows the last message";
  EXPECT_THROW(session->report({{"i", 1}}, std::nullopt), EngineError);

  wire::Begin second = rank(0);
  second.attempt = 5;
  driver->send(wire::encode(second));
  driver->send(wire::encode(wire::Payload{{7, 8, 9}}));
  auto following = session->wait_for_next();
  ASSERT_TRUE(following);
  EXPECT_EQ(following->payload, (Bytes{7, 8, 9}));
  EXPECT_EQ(following->session->attempt(), 5);
  following->session->start();
  EXPECT_TRUE(next<wire::WorkerReady>().kept);
  following->session->report({{"i", 2}}, std::nullopt);
  EXPECT_EQ(next<wire::Reports>().reports.at(0).index, 0) << "reports are counted anew";
  session.reset();  // the old one has let go of the socket
  following->session->report({{"i", 3}}, std::nullopt);
  EXPECT_EQ(next<wire::Reports>().reports.at(0).index, 1);
}

TEST_F(WorkerSessionTest, AKeptOneEndsWhenTheAgentIsGone) {
  wire::Begin first = rank(0);
  first.keep = true;
  begin(first);
  session->finish({});
  driver.reset();
  EXPECT_FALSE(session->wait_for_next());
}

TEST_F(WorkerSessionTest, AReportThatIsTooBigIsRefusedAndNotSent) {
  wire::Begin small = rank(0);
  small.max_report_size = 1000;
  begin(small);
  try {
    session->report({{"x", 1}, {"big", {{"a", std::string(10, 'x')}, {"b", std::string(2000, 'x')}}}}, std::nullopt);
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    for (const char* words : {"the metrics take 2 kB", "metrics[\"big\"][\"b\"] is 2 kB", "at most 1 kB", "checkpoint"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  session->report({{"x", std::string(900, 'x')}}, std::nullopt);
  EXPECT_EQ(next<wire::Reports>().reports.at(0).index, 0);
}

}  // namespace
}  // namespace lockstep::worker
