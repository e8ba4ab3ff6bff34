// Workers that stay for the next attempt.

#include <algorithm>

#include "agent_harness.h"

namespace lockstep::agent {
namespace {

class KeptWorkers : public AgentHarness {
 protected:
  /// An attempt of two ranks that are kept; each prints `text`.
  std::vector<int> keep_two(int attempt, const std::string& text, Bytes payload = {}) {
    start(attempt, {{cmd("print", text), cmd("send", 1)}, {cmd("print", text), cmd("send", 2)}}, std::move(payload),
          true);
    while (from_worker_[0].empty() || from_worker_[1].empty()) expect<wire::FromWorker>();
    for (const std::size_t rank : {0, 1}) wait_for_pid(rank);
    send(wire::KeepWorkers{attempt});
    EXPECT_EQ(expect<wire::AttemptEnded>().attempt, attempt);
    return pids_;
  }

  /// Kills a kept worker, and waits until the agent knows.
  wire::KeptWorkers kill_kept(int pid) {
    ::kill(pid, SIGKILL);
    expect_gone(pid, 5s);
    wire::KeptWorkers answer;
    do {
      send(wire::CountKept{});
      answer = expect<wire::KeptWorkers>();
    } while (answer.lost.empty());
    return answer;
  }

  bool saw_exit() const {
    return std::ranges::any_of(seen_, [](const auto& m) { return std::holds_alternative<wire::WorkerExited>(m); });
  }
};

TEST_F(KeptWorkers, RunTheNextAttempt) {
  configure();
  const auto first = keep_two(0, "one ");
  EXPECT_EQ(log_, (std::vector<std::string>{"one ", "one "}));
  EXPECT_EQ(keep_two(0, "two", Bytes(70'000, 1)), first);
  EXPECT_EQ(log_, (std::vector<std::string>{"payload 70000\ntwo", "payload 70000\ntwo"}));
  EXPECT_FALSE(saw_exit());
  start(1, {{cmd("print", "last")}, {cmd("print", "last")}});  // who are not kept end
  expect<wire::AttemptEnded>();
  EXPECT_EQ(pids_, first);
  for (const auto& exit : exits_) EXPECT_EQ(exit.code, 0);
  for (const int pid : first) EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

/// A pipe's worth of text may wait when the driver says KeepWorkers.
TEST_F(KeptWorkers, AllThatTheyPrintedComesBeforeTheEnd) {
  configure();
  const std::string text(50'000, 'x');
  keep_two(0, text);
  EXPECT_EQ(log_, (std::vector<std::string>{text, text}));
}

TEST_F(KeptWorkers, ADeadOneIsReplacedWithAllTheOthers) {
  configure();
  const auto first = keep_two(0, "");
  kill_kept(first[1]);
  const auto second = keep_two(1, "new");
  EXPECT_EQ(log_, (std::vector<std::string>{"new", "new"}));  // new ones have their payload as a descriptor
  EXPECT_NE(second[0], first[0]);
  EXPECT_EQ(sys::process_status(first[0]), std::nullopt);
  EXPECT_FALSE(saw_exit()) << "the driver hears of the attempt that runs, and of no other";
}

TEST_F(KeptWorkers, AnotherNumberOfRanksGetsNewWorkers) {
  configure();
  const auto first = keep_two(0, "");
  EXPECT_EQ(run({cmd("exit", 3)}).code, 3);
  for (const int pid : first) EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST_F(KeptWorkers, OneThatEndsBeforeItIsKeptTakesTheOthersAlong) {
  configure();
  start(0, {{cmd("send", 1)}, {cmd("send", 1), cmd("exit", 7)}}, {}, true);
  expect<wire::WorkerExited>();
  send(wire::KeepWorkers{0});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 0);
  EXPECT_TRUE(exits_[0].stopped_by_us);
  EXPECT_EQ(exits_[1].code, 7);
}

TEST_F(KeptWorkers, AreStoppedLikeAnyOthersInTheirNextAttempt) {
  configure();
  keep_two(0, "");
  start(1, {{cmd("wait")}, {cmd("wait")}}, {}, true);
  send(wire::StopAttempt{1, false, 0});
  expect<wire::AttemptEnded>();
  for (const auto& exit : exits_) EXPECT_EQ(exit.signal, SIGKILL);
}

TEST_F(KeptWorkers, EndWithTheAgent) {
  configure();
  const auto kept = keep_two(0, "");
  control_.reset();
  expect_end(agent_.pidfd.get(), 5s, "the agent");
  for (const int pid : kept) EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST_F(KeptWorkers, EndWhenTheProgramChanges) {
  configure();
  const auto kept = keep_two(0, "");
  auto other = test_workers();
  other.env["A_VARIABLE"] = "another value";
  configure(other);
  start(0, {{cmd("print_env", "A_VARIABLE")}});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(log_[0], "another value\n");
  for (const int pid : kept) EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST_F(KeptWorkers, AreCounted) {
  configure();
  send(wire::CountKept{});
  EXPECT_EQ(expect<wire::KeptWorkers>().alive, 0);
  const auto kept = keep_two(0, "");
  send(wire::CountKept{});
  const auto all = expect<wire::KeptWorkers>();
  EXPECT_EQ(all.alive, 2) << all.lost;
  const auto answer = kill_kept(kept[1]);
  EXPECT_EQ(answer.alive, 1);
  EXPECT_EQ(answer.lost, "rank 1 was killed by signal 9");
}

/// Messages that take longer than the driver waits for a heartbeat are no silence, in either direction.
TEST_F(KeptWorkers, BytesThatMoveAreToldOf) {
  configure();
  keep_two(0, "");
  start(1, {{cmd("echo", 1)}, {cmd("wait")}}, Bytes(8 << 20, 1), true);  // more than a socket holds
  EXPECT_EQ(expect<wire::WorkerAlive>().attempt, 1);
  send(wire::ToWorker{1, 0, Bytes(8 << 20, 2)});
  expect<wire::FromWorker>();
}

}  // namespace
}  // namespace lockstep::agent
