#include "worker/worker_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>

#include "session_harness.h"

namespace lockstep::worker {
namespace {

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

TEST_F(WorkerSessionTest, AFailureComesAfterWhatWasReported) {
  begin(rank(0));
  session->report({{"a", 1}}, std::nullopt);
  Failure failure;
  failure.message = "boom";
  session->fail(failure);
  next<wire::Reports>();
  EXPECT_EQ(next<wire::WorkerFailed>().failure["message"], "boom");
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
