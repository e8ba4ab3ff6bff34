#include "driver/begin.h"

#include <gtest/gtest.h>

#include "sys/node.h"

namespace lockstep::driver {
namespace {

using Peers = std::vector<wire::PeerNode>;

/// So many machines with two cores each: 10.0.0.1, 10.0.0.2, ...
std::vector<NodeOffer> machines(int count) {
  std::vector<NodeOffer> made;
  for (int i = 1; i <= count; ++i) {
    const std::string number = std::to_string(i);
    made.push_back({"n" + number, "10.0.0." + number, {{"CPU", 2 * kWhole}}, {}});
  }
  return made;
}

Placement placed(int workers, const std::string& strategy, const std::vector<NodeOffer>& nodes) {
  ScalingConfig scaling;
  scaling.num_workers = workers;
  scaling.placement_strategy = strategy;
  scaling.resources_per_worker = {{"CPU", 1}};
  return place(scaling, nodes, {});
}

TEST(Begin, PeersAreTheNodesThatHaveWorkers) {
  EXPECT_EQ(peers_of(placed(3, "PACK", machines(3))), (Peers{{"10.0.0.1", 2}, {"10.0.0.2", 1}}));
  EXPECT_EQ(peers_of(placed(4, "SPREAD", machines(3))), (Peers{{"10.0.0.1", 2}, {"10.0.0.2", 1}, {"10.0.0.3", 1}}));
}

TEST(Begin, RanksOfOneNodeMeetOnItsLoopback) {
  EXPECT_EQ(peers_of(placed(2, "STRICT_PACK", machines(2))), (Peers{{sys::kLoopback, 2}}));
}

TEST(Begin, PeersLeaveOutALostNode) {
  auto nodes = machines(3);
  nodes[1].lost = true;
  EXPECT_EQ(peers_of(placed(3, "PACK", nodes)), (Peers{{"10.0.0.1", 2}, {"10.0.0.3", 1}}));
}

TEST(Begin, TwoNodesOfOneAddressAreTwoPeers) {
  auto nodes = machines(2);
  nodes[1].address = nodes[0].address;
  EXPECT_EQ(peers_of(placed(4, "PACK", nodes)), (Peers{{"10.0.0.1", 2}, {"10.0.0.1", 2}}));
}

TEST(Begin, EachRankFindsItsNodeByTheNodesBeforeIt) {
  const Placement placement = placed(5, "SPREAD", machines(3));
  const Peers peers = peers_of(placement);
  std::size_t rank = 0;
  for (std::size_t node = 0; node < peers.size(); ++node)
    for (int i = 0; i < peers[node].ranks; ++i, ++rank) {
      EXPECT_EQ(placement.ranks.at(rank).node_rank, static_cast<int>(node));
      EXPECT_EQ(placement.ranks.at(rank).address, peers[node].address);
    }
  EXPECT_EQ(rank, placement.ranks.size());
}

TEST(Begin, HoldsWhatThePlanSaysOfProgramFunctionAndGroup) {
  RunPlan plan;
  plan.program = {{{"program"}, {{"A", "1"}}, "/work", {}}, {"/modules"}, {"train.py"}};
  plan.function.name = "train";
  plan.group.keep_workers = true;
  const wire::Begin begin = begin_of_all(plan, {}, 3);
  EXPECT_EQ(begin.attempt, 3);
  EXPECT_EQ(begin.env.at("A"), "1");
  EXPECT_EQ(begin.cwd, "/work");
  EXPECT_EQ(begin.python_path, std::vector<std::string>{"/modules"});
  EXPECT_EQ(begin.argv, std::vector<std::string>{"train.py"});
  EXPECT_EQ(begin.function, "train");
  EXPECT_TRUE(begin.keep);
  EXPECT_FALSE(begin.calls) << "there are no hooks";
  EXPECT_FALSE(begin_of_all(RunPlan(), {}, 0).keep);
}

}  // namespace
}  // namespace lockstep::driver
