#include "train/resource_pool.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <set>
#include <stdexcept>

#include "train/driven_run.h"

namespace lockstep::train {
namespace {

using driver::kWhole;
using driver::NodeOffer;

NodeOffer node_with(int cpus, int gpus, int licences = 0) {
  NodeOffer node{"here", "10.0.0.1", {{"CPU", cpus * kWhole}, {"licence", licences * kWhole}}, {}};
  for (int i = 0; i < gpus; ++i) node.gpus.push_back({std::to_string(i), kWhole});
  return node;
}

ResourcePool pool_of(int cpus, int gpus, int licences = 0) {
  return ResourcePool([=] { return std::vector{node_with(cpus, gpus, licences)}; });
}

ResourcePool::Request needing(std::map<std::string, double> each, WorkerCount workers = 1,
                              const std::string& run = "a") {
  ResourcePool::Request request;
  request.run = run;
  request.scaling.num_workers = workers;
  request.scaling.use_gpu = each.contains("GPU");
  request.scaling.resources_per_worker = std::move(each);
  return request;
}

/// What a request that does not wait is told.
std::string refusal(ResourcePool& pool, ResourcePool::Request request) {
  request.wait = false;
  try {
    pool.acquire(request);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// The same from another thread: one that holds nothing.
std::string refusal_elsewhere(ResourcePool& pool, const ResourcePool::Request& request) {
  return std::async(std::launch::async, [&] { return refusal(pool, request); }).get();
}

std::string threads_of(const Lease& lease, const ScalingConfig& scaling) {
  return driver::place(scaling, lease.offers(), {}).ranks.at(0).env.at("OMP_NUM_THREADS");
}

void wait_until(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(done());
}

// ---------------------------------------------------------------- pure decisions

TEST(Holdings, WhatIsHeldIsNotLeft) {
  const std::vector<NodeOffer> nodes{node_with(4, 2, 3), node_with(4, 1)};
  const auto scaling = needing({{"GPU", 0.5}, {"CPU", 1}, {"licence", 0.1}}, 3).scaling;
  const auto held = holding_of(scaling, driver::place(scaling, nodes, {}), nodes);
  const auto left = left_of(nodes, {held});
  EXPECT_EQ(left[0].amounts.at("CPU"), kWhole);
  EXPECT_EQ(left[0].amounts.at("licence"), 27'000);
  EXPECT_EQ(left[0].gpus[0].free, 0);
  EXPECT_EQ(left[0].gpus[1].free, kWhole / 2);
  EXPECT_EQ(left[1], nodes[1]);
  EXPECT_EQ(held.sharers, (std::vector<int>{0, 0}));
}

TEST(Holdings, WhatIsGoneMeanwhileIsNotMissed) {
  const std::vector<NodeOffer> nodes{node_with(4, 2, 3)};
  const auto scaling = needing({{"GPU", 1}, {"licence", 1}}, 2).scaling;
  const auto held = holding_of(scaling, driver::place(scaling, nodes, {}), nodes);
  const auto left = left_of({node_with(4, 1, 1)}, {held});
  EXPECT_EQ(left[0].amounts.at("licence"), 0);
  EXPECT_EQ(left[0].gpus[0].free, 0);
  EXPECT_EQ(held.sharers, std::vector<int>{2});
}

// ---------------------------------------------------------------- leases

TEST(ResourcePoolTest, RunsNeverHaveTheSameGpu) {
  auto pool = pool_of(4, 3);
  const auto first = pool.acquire(needing({{"GPU", 2}}));
  const auto second = pool.acquire(needing({{"GPU", 1}}, 1, "b"));
  EXPECT_EQ(first->offers()[0].gpus, (std::vector<driver::GpuOffer>{{"0"}, {"1"}}));
  EXPECT_EQ(second->offers()[0].gpus, std::vector<driver::GpuOffer>{{"2"}});
  EXPECT_EQ(refusal_elsewhere(pool, needing({{"GPU", 1}}, 1, "c")),
            "[resources] run \"c\" needs 1 GPU, held by runs \"a\", \"b\"; try again later, or leave out "
            "wait_for_resources=False to wait");
}

TEST(ResourcePoolTest, MoreThanThereIsIsRefusedAtOnce) {
  auto pool = pool_of(4, 1);
  const auto held = pool.acquire(needing({{"GPU", 1}}));
  EXPECT_THROW(pool.acquire(needing({{"GPU", 1}}, 2)), ConfigError);
  EXPECT_NE(refusal(pool, needing({{"licence", 1}})).find("this machine has 0"), std::string::npos);
}

TEST(ResourcePoolTest, WhatIsReleasedIsThereAgain) {
  auto pool = pool_of(4, 1);
  for (int i = 0; i < 3; ++i) {
    auto lease = pool.acquire(needing({{"GPU", 1}}));
    EXPECT_EQ(pool.leases(), 1);
    Lease moved = std::move(*lease);
    lease->release();
    EXPECT_EQ(pool.leases(), 1);
  }
  EXPECT_EQ(pool.leases(), 0);
}

TEST(ResourcePoolTest, TotalsAndWhatIsAvailable) {
  auto pool = pool_of(4, 2, 3);
  EXPECT_EQ(pool.available(), pool.total());
  const auto first = pool.acquire(needing({{"GPU", 0.5}, {"licence", 1}}, 2));
  EXPECT_EQ(pool.total(), (std::map<std::string, double>{{"CPU", 4}, {"GPU", 2}, {"licence", 3}}));
  EXPECT_EQ(pool.available(), (std::map<std::string, double>{{"CPU", 2}, {"GPU", 1}, {"licence", 1}}));
}

TEST(ResourcePoolTest, ARunThatAsksForNothingNeverWaits) {
  auto pool = pool_of(2, 0);
  const auto all = pool.acquire(needing({{"CPU", 1}}, 2));
  auto request = needing({}, 8, "b");
  request.wait = false;
  const auto lease = pool.acquire(request);
  ASSERT_TRUE(lease);
  EXPECT_EQ(threads_of(*lease, request.scaling), "1");
  EXPECT_EQ(pool.available().at("CPU"), 0);
}

TEST(ResourcePoolTest, RunsThatAskForNoCpusShareTheCores) {
  auto pool = pool_of(8, 0);
  const auto request = needing({}, 2);
  const auto first = pool.acquire(request);
  EXPECT_EQ(threads_of(*first, request.scaling), "4");
  auto second = pool.acquire(request);
  EXPECT_EQ(threads_of(*first, request.scaling), "2") << "for its next attempt";
  EXPECT_EQ(threads_of(*second, request.scaling), "2");
  const auto asking = pool.acquire(needing({{"CPU", 4}}));
  EXPECT_EQ(threads_of(*asking, needing({{"CPU", 4}}).scaling), "4");
  EXPECT_EQ(threads_of(*second, request.scaling), "1") << "the cores that nobody asked for";
  second->release();
  EXPECT_EQ(threads_of(*first, request.scaling), "2");
}

TEST(ResourcePoolTest, ALeaseIsPlacedTheSameWayAgain) {
  auto pool = ResourcePool([] { return std::vector{node_with(1, 2), node_with(4, 2), node_with(4, 2)}; });
  const auto request = needing({{"GPU", 1}}, 4);
  const auto lease = pool.acquire(request);
  const auto placement = driver::place(request.scaling, lease->offers(), {});
  EXPECT_EQ(placement.nodes(), (std::vector<int>{1, 2}));
  EXPECT_EQ(placement.ranks[3].gpus, std::vector<std::string>{"1"});
}

// ---------------------------------------------------------------- elastic runs

/// How many workers the next attempt has.
int place_again(const Lease& lease, const ScalingConfig& scaling) {
  return lease.place(scaling, {}, [](auto&) {}).world_size();
}
int room_of(const Lease& lease, const ScalingConfig& scaling) {
  return lease.room(scaling, [](auto&) {});
}

TEST(ElasticLeases, HoldWhatIsFreeAndGrowWhenOthersEnd) {
  auto pool = pool_of(6, 0);
  auto other = pool.acquire(needing({{"CPU", 1}}, 4, "b"));
  const auto request = needing({{"CPU", 1}}, {1, 5});
  const auto lease = pool.acquire(request);
  EXPECT_EQ(place_again(*lease, request.scaling), 2);
  EXPECT_EQ(room_of(*lease, request.scaling), 2);
  EXPECT_EQ(pool.available().at("CPU"), 0);
  other->release();
  EXPECT_EQ(room_of(*lease, request.scaling), 5);
  EXPECT_EQ(pool.available().at("CPU"), 4) << "it has not grown yet";
  EXPECT_EQ(place_again(*lease, request.scaling), 5);
  EXPECT_EQ(pool.available().at("CPU"), 1);
}

TEST(ElasticLeases, ShrinkWithTheNode) {
  int slots = 4;
  ResourcePool pool([&] { return std::vector{node_with(1, 0, slots)}; });
  const auto request = needing({{"licence", 1}}, {2, 4});
  const auto lease = pool.acquire(request);
  EXPECT_EQ(place_again(*lease, request.scaling), 4);
  slots = 3;
  EXPECT_EQ(place_again(*lease, request.scaling), 3);
  slots = 1;
  EXPECT_EQ(room_of(*lease, request.scaling), 0);
  EXPECT_THROW(place_again(*lease, request.scaling), ConfigError);
  slots = 4;
  EXPECT_EQ(place_again(*lease, request.scaling), 4);
}

TEST(ElasticLeases, TakeTheNodesThatAreLeft) {
  ResourcePool pool([] { return std::vector{node_with(2, 0), node_with(2, 0), node_with(2, 0)}; });
  const auto request = needing({}, {2, 8});
  const auto lease = pool.acquire(request);
  EXPECT_EQ(place_again(*lease, request.scaling), 6);
  const auto without_one = [](std::vector<NodeOffer>& nodes) { nodes[1].lost = true; };
  const auto placement = lease->place(request.scaling, {}, without_one);
  EXPECT_EQ(placement.nodes(), (std::vector<int>{0, 2}));
  EXPECT_FALSE(placement.crowded);
  EXPECT_EQ(room_of(*lease, request.scaling), 6);
}

TEST(ElasticLeases, ShareCoresWithRunsThatAskForNothing) {
  auto pool = pool_of(4, 0);
  auto other = pool.acquire(needing({}, 1, "b"));
  const auto request = needing({}, {1, 8});
  const auto lease = pool.acquire(request);
  EXPECT_EQ(place_again(*lease, request.scaling), 2);
  other->release();
  EXPECT_EQ(room_of(*lease, request.scaling), 4);
}

TEST(ElasticLeases, DoNotGrowWhileOthersWait) {
  auto pool = pool_of(6, 0);
  auto other = pool.acquire(needing({{"CPU", 1}}, 2, "b"));
  const auto request = needing({{"CPU", 1}}, {1, 6});
  auto lease = pool.acquire(request);
  EXPECT_EQ(place_again(*lease, request.scaling), 4);
  auto big = std::async(std::launch::async, [&] { return pool.acquire(needing({{"CPU", 1}}, 3, "big")); });
  wait_until([&] { return pool.waiting() == 1; });
  other->release();
  EXPECT_EQ(room_of(*lease, request.scaling), 4);
  EXPECT_EQ(place_again(*lease, request.scaling), 4);
  EXPECT_EQ(pool.waiting(), 1);
  lease->release();
  EXPECT_TRUE(big.get());
}

// ---------------------------------------------------------------- waiting

TEST(ResourcePoolTest, WaitsForOthersAndSaysSo) {
  auto pool = pool_of(4, 2);
  auto held = pool.acquire(needing({{"GPU", 1}}));
  std::string said;
  auto request = needing({{"GPU", 2}}, 1, "b");
  request.say = [&](const std::string& text) { said = text; };
  auto waiting = std::async(std::launch::async, [&] { return pool.acquire(request).has_value(); });
  wait_until([&] { return pool.waiting() == 1; });
  held->release();
  EXPECT_TRUE(waiting.get());
  EXPECT_EQ(said, "run \"b\" waits for 2 GPU, held by run \"a\"");
  EXPECT_EQ(pool.leases(), 0);
}

TEST(ResourcePoolTest, FirstComeFirstServed) {
  auto pool = pool_of(4, 2);
  auto held = pool.acquire(needing({{"GPU", 1}}));
  std::promise<void> end;
  auto big = std::async(std::launch::async, [&, ended = end.get_future()]() mutable {
    const auto lease = pool.acquire(needing({{"GPU", 2}}, 1, "big"));
    ended.wait();
  });
  wait_until([&] { return pool.waiting() == 1; });
  EXPECT_EQ(refusal_elsewhere(pool, needing({{"GPU", 1}}, 1, "small")),
            "[resources] run \"small\" needs its turn, behind run \"big\"; try again later, or leave out "
            "wait_for_resources=False to wait");
  auto small = std::async(std::launch::async, [&] { return pool.acquire(needing({{"GPU", 1}}, 1, "small")); });
  wait_until([&] { return pool.waiting() == 2; });
  held->release();
  wait_until([&] { return pool.waiting() == 1; });
  EXPECT_EQ(pool.leases(), 1) << "the big one has both";
  end.set_value();
  EXPECT_TRUE(small.get());
}

TEST(ResourcePoolTest, AWaitCanBeInterrupted) {
  auto pool = pool_of(4, 1);
  const auto held = pool.acquire(needing({{"GPU", 1}}));
  const sys::Descriptor interrupt(eventfd(0, EFD_CLOEXEC));
  auto request = needing({{"GPU", 1}}, 1, "b");
  request.interrupts = {interrupt.get()};
  auto waiting = std::async(std::launch::async, [&] { return pool.acquire(request).has_value(); });
  wait_until([&] { return pool.waiting() == 1; });
  eventfd_write(interrupt.get(), 1);
  EXPECT_FALSE(waiting.get());
  EXPECT_EQ(pool.waiting(), 0);
}

/// A request of a run that a callback of run `driven` started.
ResourcePool::Request inside(std::uint64_t driven, ResourcePool::Request request) {
  request.within = {driven};
  return request;
}

TEST(ResourcePoolTest, ARunOfACallbackDoesNotWaitForItself) {
  auto pool = pool_of(4, 2, 1);
  auto request = needing({{"GPU", 2}}, 1, "outer");
  request.driven = 7;
  auto outer = pool.acquire(request);
  const auto inner = inside(7, needing({{"GPU", 1}}, 1, "inner"));
  EXPECT_THROW(pool.acquire(inner), ConfigError);
  EXPECT_NE(refusal_elsewhere(pool, inner).find("but was started by a callback of run \"outer\""), std::string::npos)
      << "in another thread too";
  auto queued = std::async(std::launch::async, [&] { return pool.acquire(needing({{"GPU", 1}}, 1, "c")).has_value(); });
  wait_until([&] { return pool.waiting() == 1; });
  EXPECT_TRUE(pool.acquire(inside(7, needing({{"licence", 1}}, 1, "inner"))))
      << "it passes those that wait for its own run";
  outer->release();
  EXPECT_TRUE(queued.get());
}

TEST(ResourcePoolTest, WorkersThatAreOnlyKeptDriveNoRun) {
  auto pool = pool_of(4, 1);
  auto request = needing({{"GPU", 1}}, 1, "group");
  request.driven = 7;
  const auto group = pool.acquire(request);
  const auto next = inside(7, needing({{"GPU", 1}}, 1, "next"));
  EXPECT_NE(refusal(pool, next).find("a callback"), std::string::npos);
  group->set_driven(0);
  EXPECT_NE(refusal(pool, next).find("try again later"), std::string::npos);
}

TEST(ResourcePoolTest, AWaitThatFailsLeavesTheQueue) {
  auto pool = pool_of(4, 1);
  auto held = pool.acquire(needing({{"GPU", 1}}));
  auto request = needing({{"GPU", 1}}, 1, "b");
  request.say = [](const std::string&) { throw std::runtime_error("no console"); };
  EXPECT_THROW(pool.acquire(request), std::runtime_error);
  EXPECT_EQ(pool.waiting(), 0);
  held->release();
  EXPECT_TRUE(pool.acquire(needing({{"GPU", 1}}, 1, "c")));
}

TEST(ResourcePoolTest, AWaitSeesNewResources) {
  std::atomic<int> gpus = 1;
  ResourcePool pool([&] { return std::vector{node_with(4, gpus)}; });
  const auto held = pool.acquire(needing({{"GPU", 1}}));
  auto waiting = std::async(std::launch::async, [&] {
    return pool.acquire(needing({{"GPU", 1}}, 1, "b")).has_value();
  });
  wait_until([&] { return pool.waiting() == 1; });
  gpus = 2;
  pool.nodes_changed();
  EXPECT_TRUE(waiting.get());
}

TEST(ResourcePoolTest, AReleasedLeaseOffersNothing) {
  auto pool = pool_of(4, 1);
  auto lease = pool.acquire(needing({{"GPU", 1}}));
  lease->release();
  EXPECT_THROW(lease->offers(), EngineError);
}

TEST(ResourcePoolTest, WhatWasHeldOnALostNodeIsTakenFromOthers) {
  ResourcePool pool([] { return std::vector<NodeOffer>{node_with(2, 0), node_with(2, 0), node_with(2, 0)}; });
  auto request = needing({{"CPU", 1}}, 3);
  request.scaling.placement_strategy = "SPREAD";
  const auto lease = pool.acquire(request);
  const auto nodes_of = [&](std::set<std::size_t> lost) {
    std::vector<int> nodes;
    const auto mark = [&](std::vector<NodeOffer>& offers) {
      for (const std::size_t each : lost) offers[each].lost = true;
    };
    for (const auto& place : lease->place(request.scaling, {}, mark).ranks) nodes.push_back(place.node);
    return nodes;
  };
  EXPECT_EQ(nodes_of({}), (std::vector<int>{0, 1, 2}));
  auto other = pool.acquire(needing({{"CPU", 1}}, 2, "b"));  // on node 0 and 1: one core is left, on node 2
  EXPECT_THROW(nodes_of({2}), EngineError);
  EXPECT_EQ(pool.leases(), 2) << "it still holds what it held";
  other.reset();
  EXPECT_EQ(nodes_of({2}), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(pool.leases(), 1);
  EXPECT_EQ(pool.available().at("CPU"), 3);
  EXPECT_THROW(nodes_of({1, 2}), ConfigError) << "one node has too little for all";
}

TEST(DrivenRunTest, RunsOfCallbacksKnowTheRunsAroundThem) {
  EXPECT_TRUE(runs_of_this_thread().empty());
  {
    const DrivenRun outer({});
    const auto started = runs_of_this_thread();
    EXPECT_EQ(started, std::vector{outer.id()});
    std::thread([&] {
      const DrivenRun background(started);
      const DrivenRun inner(runs_of_this_thread());
      EXPECT_EQ(runs_of_this_thread(), (std::vector{outer.id(), background.id(), inner.id()}));
    }).join();
  }
  EXPECT_TRUE(runs_of_this_thread().empty());
}

TEST(ResourcePoolTest, DeclaredResourcesWakeRunsThatWait) {
  auto& pool = process_resources();
  declare_resources({{"licence", 1}});
  const auto held = pool.acquire(needing({{"licence", 1}}));
  auto waiting = std::async(std::launch::async, [&] {
    return pool.acquire(needing({{"licence", 1}}, 1, "b")).has_value();
  });
  wait_until([&] { return pool.waiting() == 1; });
  declare_resources({{"licence", 2}});
  EXPECT_TRUE(waiting.get());
  declare_resources({});
}

TEST(ResourcePoolTest, AForkStartsEmpty) {
  auto pool = pool_of(4, 1);
  const auto held = pool.acquire(needing({{"GPU", 1}}));
  const pid_t child = fork();
  if (child == 0) {
    auto request = needing({{"GPU", 1}});
    request.wait = false;
    _exit(pool.available().at("GPU") == 1 && pool.acquire(request) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pool.available().at("GPU"), 0);
}

/// 50 leases of random size from 8 threads: nothing is held twice at any time, and nothing is left over.
TEST(ResourcePoolTest, FiftyRandomLeases) {
  auto pool = pool_of(4, 3, 2);
  std::mutex mutex;
  std::map<std::string, driver::Amount> used;
  std::atomic<int> left = 50;
  std::vector<std::future<void>> threads;
  for (unsigned seed = 0; seed < 8; ++seed)
    threads.push_back(std::async(std::launch::async, [&, seed] {
      std::mt19937 random(seed);
      const auto upto = [&](int most) { return std::uniform_int_distribution<>(0, most)(random); };
      while (left.fetch_sub(1) > 0) {
        std::map<std::string, double> each;
        if (upto(2) > 0) each["GPU"] = 0.25 * (1 + upto(3));
        if (upto(1) > 0) each["CPU"] = 1 + upto(1);
        if (upto(2) == 0) each["licence"] = 1;
        const auto lease = pool.acquire(needing(each, 1 + upto(1), "run" + std::to_string(seed)));
        ASSERT_TRUE(lease);
        const NodeOffer held = lease->offers()[0];
        const auto note = [&](int sign) {
          const std::lock_guard lock(mutex);
          for (const auto& gpu : held.gpus) {
            auto& sum = used["GPU " + gpu.id] += sign * gpu.free;
            EXPECT_LE(sum, kWhole);
          }
          for (const auto& [name, amount] : held.amounts) {
            if (!each.contains(name)) continue;
            auto& sum = used[name] += sign * amount;
            EXPECT_LE(sum, name == "CPU" ? 4 * kWhole : 2 * kWhole) << name;
          }
        };
        note(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(upto(3)));
        note(-1);
      }
    }));
  for (auto& thread : threads) thread.get();
  EXPECT_EQ(pool.leases(), 0);
  EXPECT_EQ(pool.waiting(), 0);
  EXPECT_EQ(pool.available(), pool.total());
}

}  // namespace
}  // namespace lockstep::train
