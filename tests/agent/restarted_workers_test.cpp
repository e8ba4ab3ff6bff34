// One rank of a running attempt, stopped and started again alone.

#include <gmock/gmock.h>

#include "agent_harness.h"

namespace lockstep::agent {
namespace {

class RestartedWorkers : public AgentHarness {
 protected:
  void SetUp() override {
    AgentHarness::SetUp();
    configure();
  }

  void restart(int attempt, int rank, const Commands& commands) {
    wire::Begin begin;
    begin.attempt = attempt;
    begin.rank = rank;
    begin.config = commands;
    begin.env["OF_THIS_RANK"] = "again";
    Value message = wire::to_value(begin);
    message["type"] = wire::Begin::kName;
    log_.at(static_cast<std::size_t>(rank)).clear();
    pids_.at(static_cast<std::size_t>(rank)) = 0;  // so that the new one is waited for
    send(wire::StartWorker{attempt, {rank, std::move(message)}});
  }
};

TEST_F(RestartedWorkers, OneThatDiedComesBackAndTheOthersStay) {
  start(3, {{cmd("print", "zero"), cmd("wait")}, {cmd("signal", SIGKILL)}}, Bytes(1000, 1));
  wait_for_log(0, "zero");
  while (exits_[1].signal == 0) expect<wire::WorkerExited>();
  const int before = pids_[1], other = pids_[0];
  restart(3, 1, {cmd("print_env", "OF_THIS_RANK"), cmd("print_payload"), cmd("wait")});
  wait_for_log(1, "again\n1000\n");
  EXPECT_NE(pids_[1], before);
  EXPECT_EQ(pids_[0], other);
  send(wire::StopAttempt{3});
  expect<wire::AttemptEnded>();
  EXPECT_TRUE(exits_[1].stopped_by_us);
}

TEST_F(RestartedWorkers, StopWorkerEndsOneAndItsChildren) {
  start(0, {{cmd("print", "zero"), cmd("wait")}, {cmd("child"), cmd("wait")}});
  wait_for_log(0, "zero");
  const int child = child_pid(1);
  send(wire::StopWorker{0, 1});
  const auto exited = expect<wire::WorkerExited>();
  EXPECT_EQ(exited.rank, 1);
  EXPECT_EQ(exited.signal, SIGKILL);
  EXPECT_FALSE(exited.stopped_by_us) << "the attempt goes on";
  expect_gone(child, 5s);
  restart(0, 1, {cmd("exit", 4)});
  EXPECT_EQ(expect<wire::WorkerExited>().code, 4);
  send(wire::StopAttempt{0});
  expect<wire::AttemptEnded>();
}

TEST_F(RestartedWorkers, ChildrenOfTheDeadAreEndedBeforeItsSuccessorBegins) {
  start(0, {{cmd("wait")}, {cmd("child"), cmd("signal", SIGKILL)}});
  const int child = child_pid(1);
  while (exits_[1].signal == 0) expect<wire::WorkerExited>();
  restart(0, 1, {cmd("print", "new"), cmd("wait")});
  expect_gone(child, 5s);
  wait_for_log(1, "new");
  send(wire::StopAttempt{0});
  expect<wire::AttemptEnded>();
}

TEST_F(RestartedWorkers, OneThatLivesOrAnAttemptThatIsOverIsLeftAlone) {
  start(0, {{cmd("print", "zero"), cmd("wait")}, {cmd("print", "one"), cmd("wait")}});
  wait_for_log(0, "zero");
  wait_for_log(1, "one");
  restart(0, 1, {cmd("exit", 9)});
  restart(7, 1, {cmd("exit", 9)});
  send(wire::StopWorker{7, 1});
  send(wire::StopAttempt{0});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(exits_[1].signal, SIGKILL);
  restart(0, 1, {cmd("exit", 9)});
  start(1, {{cmd("exit", 5)}});
  expect<wire::AttemptEnded>();
  EXPECT_EQ(exits_[0].code, 5);
}

}  // namespace
}  // namespace lockstep::agent
