// What becomes of workers: start, output, messages, exit, stop.

#include <gmock/gmock.h>

#include "agent_harness.h"

namespace lockstep::agent {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;

class Workers : public AgentHarness {
 protected:
  void SetUp() override {
    AgentHarness::SetUp();
    configure();
  }
};

TEST_F(Workers, ExitCodesAndSignalsAreTold) {
  EXPECT_EQ(run({}).code, 0);
  EXPECT_EQ(run({cmd("exit", 3)}).code, 3);
  const auto crashed = run({cmd("signal", SIGSEGV)});
  EXPECT_EQ(crashed.signal, SIGSEGV);
  const auto killed = run({cmd("signal", SIGKILL)});
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_FALSE(killed.out_of_memory);
  EXPECT_FALSE(killed.stopped_by_us);
}

TEST_F(Workers, EveryRankGetsItsOwnMessageAndProcess) {
  start(5, {{cmd("print", "zero"), cmd("exit", 10)},
            {cmd("print", "one"), cmd("exit", 11)},
            {cmd("print", "two"), cmd("exit", 12)}});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 5);
  EXPECT_EQ(log_, (std::vector<std::string>{"zero", "one", "two"}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(pids_[i], 0);
    EXPECT_EQ(exits_[i].code, 10 + static_cast<int>(i));
    EXPECT_EQ(exits_[i].attempt, 5);
  }
}

TEST_F(Workers, TheProcessFindsWhatItWasPromised) {
  start(0,
        {{cmd("print_env", "A_VARIABLE"), cmd("print_cwd"), cmd("print_payload"), cmd("print_leader"),
          cmd("print_stdin"), cmd("print_fds")}},
        Bytes(100'000, 1));
  expect<wire::AttemptEnded>();
  EXPECT_EQ(log_[0], "its value\n/usr\n100000\n1\n-1\n0 more\n");
}

TEST_F(Workers, EveryRankHasItsOwnEnvironment) {
  start(0, {{cmd("print_env", "OF_THIS_RANK")}, {cmd("print_env", "OF_THIS_RANK")}});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(log_, (std::vector<std::string>{"0\n", "1\n"}));
}

TEST_F(Workers, OutputAndErrorsKeepTheirOrder) {
  run({cmd("print", "1 "), cmd("print_error", "2 "), cmd("print", "3 "), cmd("print_error", "4")});
  EXPECT_EQ(log_[0], "1 2 3 4");
}

TEST_F(Workers, OutputIsValidText) {
  run({cmd("print_bytes", Value::binary({'a', 0xff, 'b', 0xc3, 0xa9, 0xe2, 0x82}))});
  EXPECT_EQ(log_[0],
            "a\xef\xbf\xbd"
            "b\xc3\xa9\xef\xbf\xbd");
}

TEST_F(Workers, MessagesAreRelayedBothWays) {
  start(3, {{cmd("echo", 2), cmd("send", 7)}, {cmd("echo", 1)}});
  send(wire::ToWorker{3, 0, {1, 2, 3}});
  send(wire::ToWorker{3, -1, {4}});
  send(wire::ToWorker{2, 0, {9}});  // of an attempt that is no more
  send(wire::ToWorker{3, 77, {9}});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(from_worker_[0], (std::vector<Bytes>{{1, 2, 3}, {4}, wire::encode(wire::Heartbeat{7})}));
  EXPECT_EQ(from_worker_[1], (std::vector<Bytes>{{4}}));
}

TEST_F(Workers, LargeMessagesPass) {
  Bytes large(10'000'000);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::uint8_t>(i * 7);
  start(0, {{cmd("echo", 1)}});
  send(wire::ToWorker{0, 0, large});
  expect<wire::AttemptEnded>();
  ASSERT_EQ(from_worker_[0].size(), 1u);
  EXPECT_TRUE(from_worker_[0][0] == large);
}

TEST_F(Workers, AllThatAWorkerSaidComesBeforeItsExit) {
  for (int round = 0; round < 20; ++round) {
    start(round, {{cmd("send", 1), cmd("print", "last words"), cmd("send", 2), cmd("signal", SIGKILL)}});
    seen_.clear();
    expect<wire::WorkerExited>();
    EXPECT_EQ(log_[0], "last words");
    EXPECT_EQ(from_worker_[0].size(), 2u);
    expect<wire::AttemptEnded>();
  }
}

TEST_F(Workers, StopKillsAtOnce) {
  start(1, {{cmd("ignore", SIGINT), cmd("ignore", SIGTERM), cmd("print", "up"), cmd("wait")},
            {cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  wait_for_log(1, "up");
  const Instant begin = now();
  send(wire::StopAttempt{1, false, 0});
  expect<wire::AttemptEnded>();
  EXPECT_LT(now() - begin, 1s);
  for (const auto& exit : exits_) {
    EXPECT_EQ(exit.signal, SIGKILL);
    EXPECT_TRUE(exit.stopped_by_us);
    EXPECT_FALSE(exit.out_of_memory);
  }
}

TEST_F(Workers, StopOfAnotherAttemptIsAnsweredAndEndsNothing) {
  start(4, {{cmd("echo", 1)}});
  send(wire::StopAttempt{3, false, 0});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 3);
  send(wire::ToWorker{4, 0, {1}});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 4);
  EXPECT_EQ(exits_[0].signal, 0);
  EXPECT_FALSE(exits_[0].stopped_by_us);
}

TEST_F(Workers, InterruptAsksFirst) {
  start(1, {{cmd("print", "up"), cmd("wait")}, {cmd("ignore", SIGINT), cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  wait_for_log(1, "up");
  const Instant begin = now();
  send(wire::StopAttempt{1, true, 0.3});
  expect<wire::AttemptEnded>();
  EXPECT_GE(now() - begin, 300ms);
  EXPECT_EQ(exits_[0].signal, SIGINT);
  EXPECT_EQ(exits_[1].signal, SIGKILL);
  EXPECT_TRUE(exits_[0].stopped_by_us);
}

TEST_F(Workers, ASecondStopKillsWithoutGrace) {
  start(1, {{cmd("ignore", SIGINT), cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  send(wire::StopAttempt{1, true, 1000});
  send(wire::StopAttempt{1, false, 0});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(exits_[0].signal, SIGKILL);
}

TEST_F(Workers, StoppedProcessesAreKilledToo) {
  start(1, {{cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  ::kill(pids_[0], SIGSTOP);
  send(wire::StopAttempt{1, false, 0});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(exits_[0].signal, SIGKILL);
}

TEST_F(Workers, ChildrenGoWithAKilledWorker) {
  start(1, {{cmd("child"), cmd("wait")}, {cmd("far_child"), cmd("wait")}});
  const int child = child_pid(0), far = child_pid(1);
  send(wire::StopAttempt{1, false, 0});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(sys::process_status(child), std::nullopt);
  EXPECT_EQ(sys::process_status(far), std::nullopt);
}

TEST_F(Workers, ChildrenGoWhenAllWorkersEndedByThemselves) {
  start(1, {{cmd("child"), cmd("far_child")}, {cmd("far_child"), cmd("exit", 1)}});
  expect<wire::AttemptEnded>();
  for (const auto& log : log_)
    for (std::size_t at = log.find("child "); at != std::string::npos; at = log.find("child ", at + 1))
      EXPECT_EQ(sys::process_status(std::stoi(log.substr(at + 6))), std::nullopt);
  EXPECT_THAT(sys::children(agent_.pid), testing::SizeIs(1)) << "the fork server alone is left";
}

TEST_F(Workers, AWorkerThatSendsGarbageIsKilled) {
  const auto exited = run({cmd("garbage"), cmd("wait")});
  EXPECT_EQ(exited.signal, SIGKILL);
}

TEST_F(Workers, AttemptsFollowEachOther) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    start(attempt, {{cmd("print", "up"), cmd("wait")}, {cmd("wait")}, {cmd("signal", SIGKILL)}, {cmd("wait")}});
    while (exits_[2].signal == 0) expect<wire::WorkerExited>();
    send(wire::StopAttempt{attempt, false, 0});
    EXPECT_EQ(expect<wire::AttemptEnded>().attempt, attempt);
  }
}

TEST_F(Workers, AProgramThatIsMissingIsTold) {
  auto missing = test_workers();
  missing.program = {"/no/such/program"};
  send(missing);
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("/no/such/program"));
  start(0, {{cmd("exit", 0)}, {cmd("exit", 0)}});
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("/no/such/program"));
  expect<wire::AttemptEnded>();
  configure();
  EXPECT_EQ(run({cmd("exit", 4)}).code, 4);
}

TEST_F(Workers, OrdersOutOfTurnAreRefused) {
  start(0, {{cmd("wait")}});
  send(test_workers());
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("attempt 0 runs"));
  wire::StartAttempt another;
  another.attempt = 1;
  another.workers.resize(1);
  send(another);
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("attempt 0 has not ended"));
  send(wire::StopAttempt{0, false, 0});
  expect<wire::AttemptEnded>();
}

TEST_F(Workers, AnAttemptWithoutWorkersEndsAtOnce) {
  start(6, {});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 6);
}

TEST_F(Workers, StacksAreCollected) {
  start(2, {{cmd("stacks", 1), cmd("print", "up"), cmd("wait")}, {cmd("stacks", 0), cmd("print", "up"), cmd("wait")}});
  wait_for_log(0, "up");
  wait_for_log(1, "up");
  for (const int pid : pids_)  // until it sleeps in "wait"
    while (sys::process_status(pid)->state != 'S') std::this_thread::yield();
  const Instant begin = now();
  send(wire::DumpStacks{2, 10});
  auto first = expect<wire::WorkerStacks>(), second = expect<wire::WorkerStacks>();
  EXPECT_LT(now() - begin, 3s);
  if (first.rank != 0) std::swap(first, second);
  EXPECT_EQ(first.attempt, 2);
  // A worker that waits may still be seen running for a moment.
  EXPECT_THAT(first.text, AllOf(ContainsRegex("pid " + std::to_string(pids_[0]) + ", state [SR]"),
                                EndsWith("a stack\nanother stack\n")));
  EXPECT_THAT(second.text, EndsWith("a stack\nanother stack\n"));
  send(wire::DumpStacks{2, 10});
  EXPECT_THAT(expect<wire::WorkerStacks>().text, EndsWith("\na stack\nanother stack\n"));
  expect<wire::WorkerStacks>();
}

TEST_F(Workers, WhoCannotTellItsStacksIsDescribed) {
  start(2, {{cmd("print", "up"), cmd("wait")},
            {cmd("stacks", 1), cmd("print", "up"), cmd("wait")},
            {cmd("deaf_stacks"), cmd("print", "up"), cmd("wait")}});
  for (std::size_t i = 0; i < 3; ++i) wait_for_log(i, "up");
  ::kill(pids_[1], SIGSTOP);
  while (sys::process_status(pids_[1])->state != 'T') std::this_thread::yield();
  send(wire::DumpStacks{2, 0.2});
  std::vector<std::string> texts(3);
  for (int i = 0; i < 3; ++i) {
    auto stacks = expect<wire::WorkerStacks>();
    texts[static_cast<std::size_t>(stacks.rank)] = stacks.text;
  }
  EXPECT_THAT(texts[0], HasSubstr("cannot write its stacks yet"));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("state T (stopped by a signal)"), HasSubstr("SIGCONT")));
  EXPECT_THAT(texts[2], HasSubstr("did not answer in time"));
  send(wire::StopAttempt{2, false, 0});
  expect<wire::AttemptEnded>();
}

}  // namespace
}  // namespace lockstep::agent
