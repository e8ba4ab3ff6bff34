#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/step.h"

namespace lockstep::driver {

/// A run that lives in a test alone: nothing is done, and time is a number.
class StepFixture : public testing::Test {
 protected:
  /// The first attempt, none of whose workers is there yet.
  void start(int ranks, int max_failures = 0) {
    size = ranks;
    state.policy.max_failures = max_failures;
    send(AgentIsReady{});
  }
  void run(int rank) {
    send(WorkerStarted{state.attempt, rank});
    send(WorkerRuns{state.attempt, rank, 100 + rank});
  }
  void run_all() {
    for (int rank = 0; rank < static_cast<int>(state.ranks.size()); ++rank) run(rank);
  }

  /// `actions` is what comes of it.
  void send(Event event) {
    actions.clear();
    take(std::move(event));
    if (settles)
      for (const int rank : std::set<int>(state.saving.unsettled)) take(Settled{state.attempt, rank});
    all.insert(all.end(), actions.begin(), actions.end());
  }

  void report(int rank, int index, bool checkpoint = false, bool preempted = false) {
    wire::Report report;
    report.index = index;
    report.has_checkpoint = checkpoint;
    report.preempted = preempted;
    send(Reported{state.attempt, rank, {report}});
  }
  void write(int rank, int report, const std::vector<std::string>& files) {
    wire::CheckpointWritten written;
    written.report = report;
    written.partial = "checkpoint_000000.partial";
    for (const auto& name : files) written.files.push_back({name, 1, "00"});
    send(PartWritten{state.attempt, rank, std::move(written)});
  }
  void write(int rank, int report) { write(rank, report, {"shard_" + std::to_string(rank)}); }
  void meet(int rank, int meeting, double timeout = 60, Bytes value = {}) {
    send(MeetingEntered{state.attempt, rank, {meeting, timeout, std::move(value)}});
  }
  void beat(int rank, std::int64_t progress = 0) { send(HeartBeat{state.attempt, rank, progress}); }
  void exit(int rank, int code, int signal, bool by_us = false) {
    send(WorkerExited{state.attempt, rank, code, signal, false, by_us});
  }
  void die(int rank) { exit(rank, 0, SIGKILL); }

  Placement placement() const {
    Placement placed;
    placed.ranks.resize(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < placed.ranks.size(); ++i) {
      placed.ranks[i].rank = static_cast<int>(i);
      if (on_nodes.size() == placed.ranks.size()) placed.ranks[i].node = on_nodes[i];
    }
    return placed;
  }

  template <class A>
  std::vector<A> done() const {
    std::vector<A> found;
    for (const Action& action : actions)
      if (const A* each = std::get_if<A>(&action)) found.push_back(*each);
    return found;
  }
  template <class A>
  const A* did() const {
    for (const Action& action : actions)
      if (const A* found = std::get_if<A>(&action)) return found;
    return nullptr;
  }
  template <class A>
  int count_all() const {
    return static_cast<int>(
        std::ranges::count_if(all, [](const Action& action) { return std::holds_alternative<A>(action); }));
  }

  RunState state;
  std::vector<Action> actions, all;
  Instant time = Instant{} + 1000s;
  int size = 1;  ///< ranks of the next attempt, on node 0 unless `on_nodes` has as many
  std::vector<int> on_nodes;
  bool places = true;   ///< attempts get their placement at once
  bool commits = true;  ///< what is to be committed is, at once
  bool settles = true;  ///< ranks that are asked at a failure say at once that nothing is left to write

 private:
  void take(Event event) {
    auto [next, more] = step(std::move(state), std::move(event), time);
    state = std::move(next);
    actions.insert(actions.end(), more.begin(), more.end());
    for (const Action& action : more) {
      if (const auto* place = std::get_if<PlaceWorkers>(&action); place != nullptr && places)
        take(Placed{place->attempt, placement()});
      if (const auto* commit = std::get_if<Commit>(&action); commit != nullptr && commits)
        take(Committed{state.attempt, commit->report, next_seq_++});
    }
  }

  int next_seq_ = 0;
};

}  // namespace lockstep::driver
