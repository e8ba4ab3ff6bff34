// Kept workers and the resources that they hold: with real workers.

#include "train/agent_slot.h"

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <thread>

#include "../driver/fake_cluster.h"
#include "engine/fake_engine.h"
#include "sys/environment.h"
#include "train/launch.h"
#include "train/resource_pool.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

void report_once(Session& session) { session.report({{"step", 0}}); }
LOCKSTEP_TRAIN_FUNCTION(report_once);

void fail_in_group(Session&) { throw std::runtime_error("boom"); }
LOCKSTEP_TRAIN_FUNCTION(fail_in_group);

/// There is one licence, which every run needs.
class AgentSlotTest : public testing::Test {
 protected:
  AgentSlotTest() { declare_resources({{"licence", 1}}); }
  ~AgentSlotTest() override {
    EXPECT_EQ(process_resources().leases(), 0);
    declare_resources({});
    fs::remove_all(place_);
  }

  PreparedRun group_run(const std::string& name, const std::string& function = "report_once") const {
    driver::RunPlan plan;
    plan.options.run.name = name;
    plan.options.run.storage_path = place_;
    plan.options.run.verbose = 0;
    plan.options.scaling.resources_per_worker = {{"licence", 1}};
    plan.function.name = function;
    plan.program.fork_server.program = {fs::read_symlink("/proc/self/exe")};
    plan.program.fork_server.env = sys::environment();
    plan.program.fork_server.cwd = fs::current_path();
    plan.group.keep_workers = true;
    return prepare(std::move(plan));
  }

  fs::path place_ = fs::temp_directory_path() / ("lockstep-slots-" + std::to_string(::getpid()));
};

TEST_F(AgentSlotTest, KeptWorkersHoldTheirResourcesUntilTheyAreStopped) {
  AgentSlot slot;
  EXPECT_EQ(train::run(group_run("first"), &slot).result.state, "finished");
  EXPECT_EQ(process_resources().leases(), 1);
  // A worker in C++ ends with its function. Until then it could be taken for one that waits for the next run.
  while (slot.kept().first > 0) std::this_thread::yield();
  const Result second = train::run(group_run("second"), &slot).result;
  EXPECT_EQ(second.state, "finished") << second.error;
  slot.stop();
  EXPECT_EQ(process_resources().leases(), 0);
}

TEST_F(AgentSlotTest, AStopEndsARunThatWaitsForResources) {
  AgentSlot holder, slot;
  train::run(group_run("holder"), &holder);
  auto waiting = std::async(std::launch::async, [&] { return train::run(group_run("waiting"), &slot).result.state; });
  while (process_resources().waiting() == 0) std::this_thread::yield();
  slot.stop();
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  holder.stop();
  EXPECT_EQ(waiting.get(), "stopped");
  EXPECT_FALSE(fs::exists(place_ / "waiting"));
  EXPECT_EQ(train::run(group_run("next"), &slot).result.state, "finished") << "the stop was not for this one";
  slot.stop();
}

TEST_F(AgentSlotTest, AGroupWhoseRunFailedHoldsNothing) {
  AgentSlot slot;
  EXPECT_EQ(train::run(group_run("failing", "fail_in_group"), &slot).result.state, "failed");
  EXPECT_EQ(slot.kept().first, 0);
  EXPECT_EQ(process_resources().leases(), 0);
}

TEST_F(AgentSlotTest, ARunThatCannotBeginHoldsNothing) {
  AgentSlot slot;
  PreparedRun run = group_run("in the way");
  fs::create_directories(place_ / "in the way");
  fs::permissions(place_ / "in the way", fs::perms::all);
  EXPECT_THROW(train::run(std::move(run), &slot), StorageError);
  EXPECT_EQ(process_resources().leases(), 0);
}

/// Three nodes of two cores each.
std::vector<driver::NodeOffer> three_nodes() {
  std::vector<driver::NodeOffer> nodes(3);
  for (driver::NodeOffer& node : nodes) node.amounts["CPU"] = 2 * driver::kWhole;
  return nodes;
}

class LostNodes : public AgentSlotTest, public ::testing::WithParamInterface<std::map<std::string, double>> {};

INSTANTIATE_TEST_SUITE_P(AskingForNothingOrForCores, LostNodes,
                         ::testing::Values(std::map<std::string, double>(), std::map<std::string, double>{{"CPU", 1}}));

TEST_P(LostNodes, GetNoWorkers) {
  auto made = std::make_unique<engine::FakeEngine>();
  engine::FakeEngine& engine = *made;
  ProcessAgents agents([&] { return std::move(made); }, {.nodes = 3});
  const engine::Connection first = agents.connect();  // starts them
  engine.accept().reset();

  ResourcePool pool(three_nodes);
  driver::RunPlan plan = group_run("three nodes").plan;
  plan.group.keep_workers = false;
  plan.options.scaling = {.num_workers = 3, .resources_per_worker = GetParam(), .placement_strategy = "SPREAD"};
  plan.options.run.failure.max_failures = 1;
  AgentSlot slot(agents);
  auto outcome = std::async(std::launch::async, [&] {
    return slot.run(plan, 1, [&](int) {
      ResourcePool::Request request;
      request.scaling = plan.options.scaling;
      return pool.acquire(request);
    });
  });

  driver::FakeCluster cluster;
  cluster.serve(engine.accept());
  ASSERT_TRUE(cluster.serve_until([&] { return cluster.alive.size() == 3; }));
  EXPECT_EQ(cluster.nodes, (std::map<int, int>{{0, 0}, {1, 1}, {2, 2}}));
  engine.lose(2, "the power went");
  cluster.lose(2, "the power went");
  ASSERT_TRUE(cluster.serve_until([&] { return cluster.attempt == 1 && cluster.alive.size() == 3; }));
  for (const auto& [rank, node] : cluster.nodes) EXPECT_LT(node, 2) << "rank " << rank;
  cluster.finish_all();
  ASSERT_TRUE(cluster.serve_until([&] { return outcome.wait_for(0s) == std::future_status::ready; }));
  const Result result = outcome.get()->result;
  EXPECT_EQ(result.state, "finished");
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].kind, FailureKind::node);
}

/// An engine that outlives the agents, because the test plays them.
struct PlayedEngine {
  engine::FakeEngine engine;
  std::promise<void> started;
};
class Borrowed : public engine::Engine {
 public:
  explicit Borrowed(PlayedEngine& played) : played_(played), engine_(played.engine) {}
  std::vector<engine::AgentHandle> start(const engine::AgentSpec& spec) override {
    auto handles = engine_.start(spec);
    played_.started.set_value();
    return handles;
  }
  std::vector<engine::LostNode> lost() override { return engine_.lost(); }
  void stop() override { engine_.stop(); }

 private:
  PlayedEngine& played_;
  engine::FakeEngine& engine_;
};

/// Its connections close one after the other, which may take long on a busy machine.
TEST_F(AgentSlotTest, AnAgentThatIsDyingGetsNoMoreRuns) {
  PlayedEngine dying, next;
  std::vector<PlayedEngine*> engines{&next, &dying};
  ProcessAgents agents([&] {
    PlayedEngine& engine = *engines.back();
    engines.pop_back();
    return std::make_unique<Borrowed>(engine);
  });
  const engine::Connection first = agents.connect();  // starts it
  dying.engine.accept().reset();

  ResourcePool pool([] {
    std::vector<driver::NodeOffer> nodes(1);
    nodes[0].amounts["CPU"] = driver::kWhole;
    return nodes;
  });
  driver::RunPlan plan = group_run("moved").plan;
  plan.group.keep_workers = false;
  plan.options.scaling = {};
  plan.options.run.failure.max_failures = 1;
  AgentSlot slot(agents);
  auto outcome = std::async(std::launch::async, [&] {
    return slot.run(plan, 1, [&](int) {
      ResourcePool::Request request;
      request.scaling = plan.options.scaling;
      return pool.acquire(request);
    });
  });

  driver::FakeCluster cluster;
  cluster.serve(dying.engine.accept());
  ASSERT_TRUE(cluster.serve_until([&] { return cluster.alive.size() == 1; }));
  cluster.hang_up();
  std::this_thread::sleep_for(100ms);
  dying.engine.lose(0, "it was killed");
  ASSERT_EQ(next.started.get_future().wait_for(20s), std::future_status::ready);
  cluster.serve(next.engine.accept());
  ASSERT_TRUE(cluster.serve_until([&] { return cluster.attempt == 1; }));
  cluster.finish_all();
  ASSERT_TRUE(cluster.serve_until([&] { return outcome.wait_for(0s) == std::future_status::ready; }));
  const Result result = outcome.get()->result;
  EXPECT_EQ(result.state, "finished") << result.error;
  EXPECT_EQ(result.failures.size(), 1U) << "one death is one failure";
}

}  // namespace
}  // namespace lockstep::train
