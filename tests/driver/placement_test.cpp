#include "driver/placement.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <array>
#include <random>

namespace lockstep::driver {
namespace {

NodeOffer machine(double cpus, int gpus = 0, std::map<std::string, double> more = {}, std::string name = "here") {
  NodeOffer made{std::move(name), "10.0.0.1", {}, {}};
  made.amounts["CPU"] = to_amount(cpus);
  for (const auto& [resource, amount] : more) made.amounts[resource] = to_amount(amount);
  for (int i = 0; i < gpus; ++i) made.gpus.push_back({std::to_string(i), kWhole});
  return made;
}

ScalingConfig asking(WorkerCount workers, bool use_gpu = false, std::map<std::string, double> resources = {},
                     std::string strategy = "PACK") {
  ScalingConfig config;
  config.num_workers = workers;
  config.use_gpu = use_gpu;
  config.resources_per_worker = std::move(resources);
  config.placement_strategy = std::move(strategy);
  return config;
}

ScalingConfig by(const std::string& strategy, WorkerCount workers, std::map<std::string, double> resources = {}) {
  return asking(workers, false, std::move(resources), strategy);
}

std::string refused(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes) {
  try {
    place(scaling, nodes, {});
    return "";
  } catch (const ConfigError& error) {
    EXPECT_FALSE(place_if_it_fits(scaling, nodes, {}));
    return error.what();
  }
}

/// The node of each rank.
std::vector<int> nodes_of(const Placement& placement) {
  std::vector<int> nodes;
  for (const auto& each : placement.ranks) nodes.push_back(each.node);
  return nodes;
}

std::string env_of(const Placement& placement, std::size_t rank, const std::string& name) {
  return placement.ranks.at(rank).env.at(name);
}

using Nodes = std::vector<int>;

TEST(Amounts, AreExact) {
  EXPECT_EQ(10 * to_amount(0.1), kWhole);
  EXPECT_EQ(to_amount(0.00001), 1) << "what was asked for is never nothing";
  EXPECT_EQ(to_amount(0), 0);
  EXPECT_GT(to_amount(1e300), 0);
  EXPECT_EQ(amount_text(to_amount(2)), "2");
  EXPECT_EQ(amount_text(to_amount(0.6)), "0.6");
  EXPECT_EQ(amount_text(to_amount(1234567)), "1234567");
}

// ---------------------------------------------------------------- one machine

TEST(Placement, EveryWorkerGetsAGpuOfItsOwn) {
  const auto given = place(asking(3, true), {machine(8, 4)}, {});
  EXPECT_EQ(env_of(given, 0, "CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(env_of(given, 2, "CUDA_VISIBLE_DEVICES"), "2");
}

TEST(Placement, WithoutGpusWorkersSeeNone) {
  EXPECT_EQ(env_of(place(asking(1), {machine(8, 4)}, {}), 0, "CUDA_VISIBLE_DEVICES"), "");
}

TEST(Placement, GpuIdsAreThoseThatTheUserSees) {
  NodeOffer some = machine(8);
  some.gpus = {{"5"}, {"GPU-abc"}};
  EXPECT_EQ(env_of(place(asking(2, true), {some}, {}), 1, "CUDA_VISIBLE_DEVICES"), "GPU-abc");
}

TEST(Placement, SeveralGpusPerWorker) {
  const auto given = place(asking(2, true, {{"GPU", 2}}), {machine(8, 4)}, {});
  EXPECT_EQ(env_of(given, 0, "CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(env_of(given, 1, "CUDA_VISIBLE_DEVICES"), "2,3");
}

TEST(Placement, FractionsShareAGpu) {
  const auto given = place(asking(4, true, {{"GPU", 0.5}}), {machine(8, 2)}, {});
  EXPECT_EQ(env_of(given, 1, "CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(env_of(given, 2, "CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(place(asking(10, true, {{"GPU", 0.1}}), {machine(8, 1)}, {}).world_size(), 10);
}

TEST(Placement, WhatIsLeftOfAGpuIsUsed) {
  NodeOffer some = machine(8, 3);
  some.gpus[0].free = to_amount(0.25);
  some.gpus[1].free = to_amount(0.5);
  EXPECT_EQ(env_of(place(asking(1, true, {{"GPU", 0.5}}), {some}, {}), 0, "CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(env_of(place(asking(1, true), {some}, {}), 0, "CUDA_VISIBLE_DEVICES"), "2");
  EXPECT_NE(refused(asking(2, true), {some}), "") << "a GPU in parts is not a whole one";
}

TEST(Placement, FractionsThatDoNotFitBesideEachOtherAreRefused) {
  const std::string text = refused(asking(3, true, {{"GPU", 0.6}}), {machine(8, 2)});
  EXPECT_EQ(text,
            "[resources] 3 workers with 0.6 GPU each need 3 devices, but this machine has 2; ask for fewer workers or "
            "less GPU per worker");
}

TEST(Placement, GpusAreNeverGivenTwice) {
  EXPECT_EQ(refused(asking(4, true), {machine(8, 2)}),
            "[resources] 4 workers with 1 GPU each need 4 GPU, but this machine has 2; ask for fewer workers or less "
            "GPU per worker");
  EXPECT_EQ(refused(asking(1, false, {{"GPU", 3}}), {machine(8, 2)}),
            "[resources] 1 worker with 3 GPU needs 3 GPU, but this machine has 2; ask for less GPU");
}

TEST(Placement, AskedCpusAreNeverGivenTwice) {
  EXPECT_NE(refused(asking(3, false, {{"CPU", 1}}), {machine(2)}), "");
  EXPECT_EQ(refused(asking(2, false, {{"CPU", 1}}), {machine(2)}), "");
  EXPECT_EQ(refused(asking(4, false, {{"CPU", 0.5}}), {machine(2)}), "");
  EXPECT_NE(refused(asking(2'000'000'000, false, {{"CPU", 1e300}}), {machine(2)}), "");
}

TEST(Placement, UnknownResourcesAreNotThere) {
  EXPECT_NE(refused(asking(1, false, {{"licence", 1}}), {machine(2)}).find("1 licence, but this machine has 0"),
            std::string::npos);
  EXPECT_EQ(refused(asking(1, false, {{"licence", 0}}), {machine(2)}), "");
}

TEST(Placement, MoreWorkersThanCoresIsFineAndSaid) {
  const auto given = place(asking(4), {machine(2)}, {});
  EXPECT_EQ(given.notes, std::vector<std::string>{"4 workers share 2 cores"});
  EXPECT_EQ(env_of(given, 3, "OMP_NUM_THREADS"), "1");
  EXPECT_TRUE(place(asking(2), {machine(2)}, {}).notes.empty());
}

TEST(Placement, ThreadsAreCoresByWorkersUnlessTheUserSetThem) {
  EXPECT_EQ(env_of(place(asking(2), {machine(8)}, {}), 0, "OMP_NUM_THREADS"), "4");
  const auto set = place(asking(2), {machine(8)}, {{"OMP_NUM_THREADS", "3"}});
  EXPECT_FALSE(set.ranks[0].env.contains("OMP_NUM_THREADS"));
}

TEST(Placement, ThreadsAreTheCpusThatAWorkerAskedFor) {
  EXPECT_EQ(env_of(place(asking(2, false, {{"CPU", 3}}), {machine(8)}, {}), 1, "OMP_NUM_THREADS"), "3");
  EXPECT_EQ(env_of(place(asking(2, false, {{"CPU", 0.5}}), {machine(8)}, {}), 1, "OMP_NUM_THREADS"), "1");
}

TEST(Placement, StrictSpreadIsRefusedOnOneMachine) {
  EXPECT_EQ(refused(by("STRICT_SPREAD", 2), {machine(8)}),
            "[config] scaling.placement_strategy is STRICT_SPREAD; it may be PACK, SPREAD or STRICT_PACK on one "
            "machine: there is one node for 2 workers");
  EXPECT_EQ(refused(by("STRICT_SPREAD", 1), {machine(8)}), "");
}

// ---------------------------------------------------------------- several nodes

TEST(Placement, RanksOfANodeAreNeighbours) {
  std::vector<NodeOffer> nodes{machine(4), machine(1), machine(4)};
  nodes[2].address = "10.0.0.3";
  const auto given = place(by("SPREAD", 4, {{"CPU", 2}}), nodes, {});
  EXPECT_EQ(nodes_of(given), (Nodes{0, 0, 2, 2}));
  EXPECT_EQ(given.nodes(), (Nodes{0, 2}));
  const RankPlace& last = given.ranks[3];
  EXPECT_EQ(last.rank, 3);
  EXPECT_EQ(last.local_rank, 1);
  EXPECT_EQ(last.local_world_size, 2);
  EXPECT_EQ(last.node_rank, 1) << "among the nodes that have workers";
  EXPECT_EQ(last.address, "10.0.0.3");
  EXPECT_EQ(given.head_address, "10.0.0.1");
}

TEST(Placement, EachNodeHasGpusOfItsOwn) {
  const auto given = place(asking(3, true), {machine(8, 2), machine(8, 2)}, {});
  EXPECT_EQ(nodes_of(given), (Nodes{0, 0, 1}));
  EXPECT_EQ(env_of(given, 1, "CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(env_of(given, 2, "CUDA_VISIBLE_DEVICES"), "0");
}

TEST(Placement, PackUsesFewNodes) {
  EXPECT_EQ(nodes_of(place(by("PACK", 3, {{"CPU", 1}}), {machine(2), machine(4), machine(4)}, {})), (Nodes{1, 1, 1}));
  EXPECT_EQ(nodes_of(place(by("PACK", 6, {{"CPU", 1}}), {machine(2), machine(4), machine(3)}, {})),
            (Nodes{1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(nodes_of(place(by("PACK", 4, {{"CPU", 0.5}}), {machine(2), machine(2)}, {})), (Nodes{0, 0, 0, 0}));
}

TEST(Placement, PackCountsCoresThoughNobodyAskedForThem) {
  EXPECT_EQ(nodes_of(place(by("PACK", 4), {machine(2), machine(2)}, {})), (Nodes{0, 0, 1, 1}));
  const auto crowded = place(by("PACK", 9), {machine(1), machine(2)}, {});
  EXPECT_EQ(nodes_of(crowded), (Nodes{0, 0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(crowded.notes, std::vector<std::string>{"9 workers share 3 cores"});
}

TEST(Placement, StrictPackIsOneNode) {
  EXPECT_EQ(nodes_of(place(by("STRICT_PACK", 3), {machine(2), machine(4)}, {})), (Nodes{1, 1, 1}));
  EXPECT_EQ(nodes_of(place(by("STRICT_PACK", 5), {machine(2), machine(4)}, {})), (Nodes{0, 0, 0, 0, 0}));
  EXPECT_EQ(refused(by("STRICT_PACK", 5, {{"CPU", 1}}), {machine(2, 0, {}, "a"), machine(4, 0, {}, "b")}),
            "[resources] 5 workers do not fit on 2 nodes with placement_strategy STRICT_PACK: a has room for 2, b has "
            "room for 4; ask for fewer workers or less per worker, or for another placement_strategy");
}

TEST(Placement, SpreadIsEven) {
  EXPECT_EQ(nodes_of(place(by("SPREAD", 5), {machine(1), machine(64)}, {})), (Nodes{0, 0, 0, 1, 1}));
  EXPECT_EQ(nodes_of(place(by("SPREAD", 5, {{"CPU", 1}}), {machine(1), machine(64)}, {})), (Nodes{0, 1, 1, 1, 1}));
}

TEST(Placement, StrictSpreadIsOneWorkerANode) {
  const std::vector<NodeOffer> nodes{machine(4), machine(1), machine(4)};
  EXPECT_EQ(nodes_of(place(by("STRICT_SPREAD", 2, {{"CPU", 2}}), nodes, {})), (Nodes{0, 2}));
  EXPECT_NE(refused(by("STRICT_SPREAD", 4), nodes).find("there are 3 nodes for 4 workers"), std::string::npos);
  EXPECT_NE(refused(by("STRICT_SPREAD", 3, {{"CPU", 2}}), nodes), "");
}

TEST(Placement, ALostNodeGetsNothing) {
  std::vector<NodeOffer> nodes{machine(4), machine(4, 2)};
  nodes[0].lost = true;
  for (const char* strategy : {"PACK", "SPREAD", "STRICT_PACK"})
    EXPECT_EQ(nodes_of(place(by(strategy, 6), nodes, {})), (Nodes(6, 1))) << strategy;
  EXPECT_NE(refused(by("STRICT_SPREAD", 2), nodes), "");
  nodes[1].lost = true;
  EXPECT_NE(refused(by("PACK", 1), nodes), "");
  EXPECT_NE(refused(asking(1, true), nodes), "");
}

TEST(Placement, WhatNodesHaveTogetherIsSaid) {
  EXPECT_NE(refused(by("PACK", 9, {{"CPU", 1}}), {machine(4), machine(4)}).find("the 2 nodes have 8"),
            std::string::npos);
  EXPECT_NE(refused(by("PACK", 2, {{"CPU", 3}}), {machine(4), machine(2)}), "") << "6 cores, but not 2 times 3";
}

TEST(Placement, AnElasticRunHasAsManyWorkersAsFit) {
  const auto size = [](const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes) {
    return place(scaling, nodes, {}).world_size();
  };
  const std::vector nodes{machine(4), machine(2)};
  EXPECT_EQ(size(by("PACK", {1, 8}, {{"CPU", 1}}), nodes), 6);
  EXPECT_EQ(size(by("PACK", {1, 8}, {{"CPU", 2}}), nodes), 3);
  EXPECT_EQ(size(by("PACK", {1, 5}, {{"CPU", 1}}), nodes), 5);
  EXPECT_EQ(size(by("SPREAD", {1, 8}, {{"CPU", 1}}), nodes), 6);
  EXPECT_EQ(size(by("STRICT_PACK", {1, 8}, {{"CPU", 1}}), nodes), 4);
  EXPECT_EQ(size(by("STRICT_SPREAD", {1, 8}, {{"CPU", 1}}), nodes), 2);
  EXPECT_EQ(size(asking({1, 8}, true), {machine(1, 3)}), 3) << "more GPUs than cores";
  EXPECT_EQ(size(asking({1, 8}, true, {{"GPU", 0.5}}), {machine(1, 3)}), 6);
  EXPECT_EQ(size(asking({1, 8}, false, {{"slot", 1}}), {machine(1, 0, {{"slot", 4}})}), 4);
}

TEST(Placement, ElasticWorkersThatAskForNothingHaveACoreEach) {
  EXPECT_EQ(place(by("PACK", {1, 8}), {machine(4), machine(2)}, {}).world_size(), 6);
  const auto spread = place(by("SPREAD", {1, 8}), {machine(4), machine(2)}, {});
  EXPECT_EQ(nodes_of(spread), (std::vector<int>{0, 0, 0, 0, 1, 1}));
  EXPECT_FALSE(spread.crowded);
  const auto crowded = place(by("PACK", {3, 8}), {machine(2)}, {});
  EXPECT_EQ(crowded.world_size(), 3) << "the least number is placed anyway, as without a range";
  EXPECT_TRUE(crowded.crowded);
}

TEST(Placement, AnElasticRunIsRefusedIfTheLeastNumberDoesNotFit) {
  EXPECT_EQ(refused(by("PACK", {3, 8}, {{"CPU", 1}}), {machine(2)}),
            "[resources] 3 workers with 1 CPU each need 3 CPU, but this machine has 2; ask for fewer workers or less "
            "CPU per worker");
  auto lost = machine(4);
  lost.lost = true;
  EXPECT_EQ(place(by("PACK", {1, 8}, {{"CPU", 1}}), {machine(2), lost}, {}).world_size(), 2);
  EXPECT_NE(refused(by("PACK", {3, 8}, {{"CPU", 1}}), {machine(2), lost}), "");
}

/// Whatever is asked of whatever cluster: nothing is given twice, and the numbers of the ranks agree.
TEST(Placement, NothingIsGivenTwice) {
  std::mt19937 random(7);
  const auto upto = [&](int most) { return std::uniform_int_distribution<>(0, most)(random); };
  int placed = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<NodeOffer> nodes;
    for (int i = upto(3); i >= 0; --i) nodes.push_back(machine(1 + upto(7), upto(4), {{"licence", upto(3)}}));
    constexpr std::array kStrategies{"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};
    constexpr std::array kGpus{0.25, 0.3, 0.5, 1.0, 2.0};
    std::map<std::string, double> resources;
    const bool use_gpu = upto(1) == 0;
    if (use_gpu) resources["GPU"] = kGpus[static_cast<std::size_t>(upto(4))];
    if (upto(1) == 0) resources["CPU"] = 0.5 * upto(4);
    if (upto(3) == 0) resources["licence"] = 1;
    const int least = 1 + upto(7), most = least + upto(1) * upto(7);
    const ScalingConfig scaling =
        asking({least, most}, use_gpu, resources, kStrategies[static_cast<std::size_t>(upto(3))]);
    const auto placement = place_if_it_fits(scaling, nodes, {});
    if (!placement) continue;
    ++placed;
    ASSERT_GE(placement->world_size(), least);
    ASSERT_LE(placement->world_size(), most);
    if (asks_for_anything(asked_per_worker(scaling)) && placement->world_size() < most) {
      ScalingConfig larger = scaling;
      larger.num_workers = placement->world_size() + 1;
      ASSERT_FALSE(place_if_it_fits(larger, nodes, {})) << "as many as fit";
    }
    const auto asked = asked_per_worker(scaling);
    std::map<std::pair<int, std::string>, Amount> gpus;
    std::map<int, int> local;
    for (const RankPlace& place : placement->ranks) {
      ASSERT_EQ(place.local_rank, local[place.node]++);
      const Amount each = asked.contains("GPU") ? asked.at("GPU") : 0;
      ASSERT_EQ(static_cast<Amount>(place.gpus.size()), each > kWhole ? each / kWhole : each > 0 ? 1 : 0);
      for (const auto& id : place.gpus) gpus[{place.node, id}] += std::min(each, kWhole);
    }
    for (const RankPlace& place : placement->ranks) ASSERT_EQ(place.local_world_size, local[place.node]);
    for (const auto& [gpu, used] : gpus) ASSERT_LE(used, kWhole);
    for (const auto& [name, each] : asked) {
      if (name == "GPU") continue;
      for (const auto& [node, workers] : local)
        ASSERT_LE(each * workers, nodes[static_cast<std::size_t>(node)].amounts[name]) << name;
    }
  }
  EXPECT_GT(placed, 500);
}

}  // namespace
}  // namespace lockstep::driver
