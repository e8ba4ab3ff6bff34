#pragma once

#include <gtest/gtest.h>

#include "../store/scratch.h"
#include "driver/run_loop.h"
#include "fake_cluster.h"
#include "store/run_directory.h"

namespace lockstep::driver {

/// A whole run, whose agents and workers are a FakeCluster.
class RunLoopTest : public testing::Test {
 protected:
  RunLoopTest() {
    plan.options.run.name = "run";
    plan.options.run.storage_path = scratch.path();
    plan.options.run.verbose = 0;
    plan.wiring.place = [this] { return placement; };
    place(2);
  }
  /// Ranks on these nodes, in order.
  void place_on(const std::vector<int>& nodes) {
    placement = {};
    for (const int node : nodes) {
      RankPlace& rank = placement.ranks.emplace_back();
      rank.rank = placement.world_size() - 1;
      rank.node = node;
      rank.address = "10.0.0." + std::to_string(node + 1);
    }
    placement.head_address = "10.0.0.1";
  }
  void place(int ranks) {
    place_on(std::vector<int>(static_cast<std::size_t>(ranks), 0));
    plan.options.scaling.num_workers = ranks;
  }

  Result run() {
    outcome = driver::run(plan, {cluster.socket(), 0, reconnect}, cluster);
    EXPECT_TRUE(cluster.script.empty()) << "not all of it happened";
    return outcome.result;
  }
  void then(std::function<void()> what) { cluster.script.push_back(std::move(what)); }
  std::filesystem::path path() const { return scratch / "run"; }
  Value record() const { return store::RunDirectory(path()).read_run_json(); }

  Scratch scratch;
  Placement placement;
  RunPlan plan;
  FakeCluster cluster;
  std::function<int()> reconnect;
  RunOutcome outcome;
};

}  // namespace lockstep::driver
