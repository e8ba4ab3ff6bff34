// Attempts and nodes in step(): placement, starts that fail, nodes that are lost.

#include "step_fixture.h"

namespace lockstep::driver {
namespace {

class AttemptsTest : public StepFixture {
 protected:
  /// Ranks on these nodes, all running.
  void begin(const std::vector<int>& nodes, int max_failures) {
    on_nodes = nodes;
    start(static_cast<int>(nodes.size()), max_failures);
    for (const int node : state.placement->nodes()) send(AgentIsReady{node});
    run_all();
  }
  Failure failure(FailureKind kind) {
    Failure made;
    made.kind = kind;
    return made;
  }
};

TEST_F(AttemptsTest, AnAttemptWaitsForItsPlacement) {
  places = false;
  start(2);
  ASSERT_NE(did<PlaceWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>(), nullptr);
  send(Placed{1, placement()});
  EXPECT_TRUE(actions.empty()) << "of another attempt";
  send(Placed{0, placement()});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->placement.world_size(), 2);
  EXPECT_EQ(state.ranks.size(), 2U);
}

TEST_F(AttemptsTest, AnAttemptWaitsForTheAgentsOfItsNodes) {
  on_nodes = {0, 2, 2, 3};
  start(4);
  std::vector<int> configured;
  for (const auto& each : done<ConfigureNode>()) configured.push_back(each.node);
  EXPECT_EQ(configured, (std::vector{2, 3}));
  EXPECT_EQ(did<StartWorkers>(), nullptr);
  send(AgentIsReady{2});
  EXPECT_EQ(did<StartWorkers>(), nullptr);
  send(AgentIsReady{3});
  EXPECT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(state.open_nodes, (std::set{0, 2, 3}));
}

TEST_F(AttemptsTest, AttemptsMayDifferInSize) {
  begin({0, 0}, 1);
  size = 3;
  on_nodes.clear();
  die(1);
  send(AttemptEnded{0});
  EXPECT_EQ(state.ranks.size(), 3U);
}

TEST_F(AttemptsTest, AnAttemptIsOverWhenAllItsNodesSaySo) {
  begin({0, 0, 1}, 0);
  for (int rank : {0, 1, 2}) send(WorkerFinished{0, rank});
  send(AttemptEnded{0, 1});
  send(AttemptEnded{0, 1});
  send(AttemptEnded{0, 7});
  EXPECT_EQ(did<EndRun>(), nullptr);
  send(AttemptEnded{0, 0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(AttemptsTest, ALostNodeIsAFailureOfTheAttempt) {
  begin({0, 1, 2}, 1);
  send(AgentLost{2, "no frame for 30 s"});
  ASSERT_NE(did<StopWorkers>(), nullptr);
  EXPECT_EQ(did<StopWorkers>()->nodes, (std::set{0, 1})) << "nothing reaches the lost one";
  send(AttemptEnded{0, 0});
  EXPECT_EQ(did<StartWorkers>(), nullptr);
  on_nodes = {0, 1, 1};
  send(AttemptEnded{0, 1});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_EQ(did<AnnounceFailure>()->failures[0].kind, FailureKind::node);
  EXPECT_EQ(did<AnnounceFailure>()->failures[0].message, "no frame for 30 s");
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(state.open_nodes, (std::set{0, 1}));
}

TEST_F(AttemptsTest, WithoutFailuresLeftALostNodeIsTheEnd) {
  begin({0, 1}, 0);
  send(AgentLost{1, "gone"});
  send(AttemptEnded{0, 0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(AttemptsTest, ALostNodeWithoutWorkersChangesNothing) {
  begin({0, 1}, 0);
  send(AgentLost{5, "gone"});
  EXPECT_TRUE(actions.empty());
}

TEST_F(AttemptsTest, ANodeWhoseFunctionsHaveReturnedMayGo) {
  begin({0, 1}, 0);
  send(WorkerFinished{0, 1});
  send(AgentLost{1, "gone"});
  EXPECT_EQ(state.phase, Phase::attempting);
  send(WorkerFinished{0, 0});
  send(AttemptEnded{0, 0});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::finished);
}

TEST_F(AttemptsTest, ALostHeadIsTheEndWhenNoOtherCanBeHad) {
  begin({0, 1}, -1);
  send(AgentLost{0, "gone"});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(AttemptsTest, ALostHeadIsReplacedWhenAnotherCanBeHad) {
  state.policy.reconnects = true;
  begin({0, 1}, 1);
  send(AgentLost{0, "gone"});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_TRUE(did<AnnounceFailure>()->again);
  EXPECT_NE(did<Reconnect>(), nullptr);
  EXPECT_EQ(did<PlaceWorkers>(), nullptr);
  on_nodes = {0, 0};
  send(AgentIsReady{0});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
}

TEST_F(AttemptsTest, AHeadThatIsLostBeforeItIsReadyIsReplacedAfterAPause) {
  state.policy.reconnects = true;
  state.policy.max_failures = 1;
  send(AgentLost{0, "gone"});
  EXPECT_TRUE(actions.empty());
  ASSERT_EQ(next_deadline(state), time + 1s);
  time += 1s;
  send(Tick{});
  ASSERT_NE(did<AnnounceFailure>(), nullptr);
  EXPECT_EQ(did<AnnounceFailure>()->failures.at(0).attempt, 0);
  EXPECT_NE(did<Reconnect>(), nullptr);
  send(AgentIsReady{0});
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
}

TEST_F(AttemptsTest, ALostHeadInThePauseIsTheEndWhenNoOtherCanBeHad) {
  start(1, 1);
  send(StartFailed{0, failure(FailureKind::storage), false});
  send(AgentLost{0, "gone"});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
  EXPECT_EQ(did<EndRun>()->failures.size(), 2U);
}

TEST_F(AttemptsTest, AStartThatFailsIsTriedAgainAfterAPause) {
  start(1, 1);
  send(StartFailed{0, failure(FailureKind::storage), false});
  EXPECT_TRUE(actions.empty()) << "no worker exists that could be stopped";
  ASSERT_EQ(next_deadline(state), time + 1s);
  time += 1s;
  send(Tick{});
  EXPECT_NE(did<AnnounceFailure>(), nullptr);
  ASSERT_NE(did<StartWorkers>(), nullptr);
  EXPECT_EQ(did<StartWorkers>()->attempt, 1);
  send(StartFailed{1, failure(FailureKind::storage), false});
  ASSERT_NE(did<EndRun>(), nullptr) << "no failure is left: nobody waits";
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

TEST_F(AttemptsTest, AStartThatCannotSucceedIsTheEnd) {
  start(1, -1);
  send(StartFailed{0, failure(FailureKind::storage), true});
  ASSERT_NE(did<EndRun>(), nullptr);
}

TEST_F(AttemptsTest, AnInterruptInThePauseEndsTheRun) {
  start(1, 1);
  send(StartFailed{0, failure(FailureKind::storage), false});
  send(Interrupted{});
  ASSERT_NE(did<EndRun>(), nullptr);
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::interrupted);
}

TEST_F(AttemptsTest, AFailureOfTheDriverBeforeThePlacementStartsNothing) {
  places = false;
  start(1, -1);
  send(DriverFailed{failure(FailureKind::callback), true});
  ASSERT_NE(did<EndRun>(), nullptr);
  send(Placed{0, placement()});
  EXPECT_TRUE(actions.empty());
}

TEST_F(AttemptsTest, AStopThatCannotKeepTheCheckpointIsAFailure) {
  settles = commits = false;
  begin({0}, -1);
  report(0, 0, true);
  send(StopRequested{true});
  write(0, 0);
  send(CommitFailed{0, 0, failure(FailureKind::storage), false});
  send(Settled{0, 0});
  send(AttemptEnded{0});
  ASSERT_NE(did<EndRun>(), nullptr) << "it does not start again";
  EXPECT_EQ(did<EndRun>()->outcome, Outcome::failed);
}

}  // namespace
}  // namespace lockstep::driver
