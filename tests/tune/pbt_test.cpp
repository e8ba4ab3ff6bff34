#include <gtest/gtest.h>

#include <cmath>

#include "simulation.h"
#include "tune/mutations.h"

namespace lockstep::tune {
namespace {

using Kind = Decision::Kind;

Value domain(Value description) { return {{"$domain", std::move(description)}}; }
const Value kRate = domain({{"kind", "loguniform"}, {"lower", 1e-4}, {"upper", 1e-1}});

/// The loss of a model that learns by its rate; it depends on the checkpoint alone.
Simulation population(Value description) {
  Simulation simulation;
  description["kind"] = "pbt";
  description["perturbation_interval"] = 5;
  description["hyperparam_mutations"] = {{"lr", kRate}};
  simulation.description = std::move(description);
  simulation.trials = 20;
  simulation.slots = 20;
  simulation.config = [](TrialNumber trial) { return Value{{"lr", 1e-4 * std::pow(1.4, trial)}, {"layers", 3}}; };
  simulation.value = [](TrialNumber, double, const Value& config) {
    return std::abs(config["lr"].get<double>() - 0.03);
  };
  return simulation;
}

TEST(PbtTest, TheWorstTakeOverFromTheBest) {
  const auto scheduler =
      make_scheduler({{"kind", "pbt"}, {"perturbation_interval", 2}, {"hyperparam_mutations", {{"lr", kRate}}}}, 1);
  for (TrialNumber trial = 0; trial < 4; ++trial) scheduler->on_added(trial, {{"lr", 0.01}, {"other", trial}});
  EXPECT_EQ(scheduler->on_result(3, 1, 9, true).kind, Kind::go_on);
  for (TrialNumber trial = 2; trial >= 0; --trial)  // none is worse than one before it
    EXPECT_EQ(scheduler->on_result(trial, 2, static_cast<double>(trial), true).kind, Kind::go_on) << trial;
  const Decision decision = scheduler->on_result(3, 3, 9, false);
  EXPECT_EQ(decision.kind, Kind::pause);
  EXPECT_EQ(decision.why, "it takes over from trial 0");
  EXPECT_EQ(scheduler->donors(), std::vector<TrialNumber>{0});

  // The donor fell behind; but its checkpoint is needed.
  EXPECT_EQ(scheduler->on_result(0, 4, 100, true).kind, Kind::go_on);
  EXPECT_EQ(scheduler->donors(), std::vector<TrialNumber>{0});
  scheduler->on_ended(0, false);
  EXPECT_EQ(scheduler->donors(), std::vector<TrialNumber>{0});

  EXPECT_EQ(scheduler->choose({}, {3}), 3);
  const auto exploit = scheduler->take_exploit(3);
  ASSERT_TRUE(exploit);
  EXPECT_EQ(exploit->donor, 0);
  EXPECT_EQ(exploit->config["other"], 0);
  EXPECT_NE(exploit->config["lr"], 0.01);
  EXPECT_TRUE(scheduler->donors().empty());
  EXPECT_FALSE(scheduler->take_exploit(3));

  const Value log = scheduler->replay_log();
  ASSERT_EQ(log.size(), 1U);
  EXPECT_EQ(log[0]["trial"], 3);
  EXPECT_EQ(log[0]["donor"], 0);
  EXPECT_EQ(log[0]["time"], 3);
  EXPECT_EQ(log[0]["donor_time"], 2);
  EXPECT_EQ(log[0]["old_config"], (Value{{"lr", 0.01}, {"other", 0}}));
  EXPECT_EQ(log[0]["new_config"], exploit->config);
}

TEST(PbtTest, ACheckpointCountsFromItsCommitOn) {
  for (const bool is_committed : {false, true}) {
    const auto scheduler =
        make_scheduler({{"kind", "pbt"}, {"perturbation_interval", 2}, {"hyperparam_mutations", {{"lr", kRate}}}}, 1);
    for (TrialNumber trial = 0; trial < 4; ++trial) scheduler->on_added(trial, {{"lr", 0.01}});
    for (TrialNumber trial = 2; trial >= 0; --trial) scheduler->on_result(trial, 2, static_cast<double>(trial), false);
    if (is_committed) scheduler->on_checkpoint(0);
    const Decision decision = scheduler->on_result(3, 3, 9, false);
    EXPECT_EQ(decision.kind, is_committed ? Kind::pause : Kind::go_on);
    EXPECT_EQ(decision.why, is_committed ? "it takes over from trial 0" : "");
  }
}

TEST(PbtTest, NobodyTakesOverFromATrialWithoutCheckpoint) {
  Simulation simulation = population({});
  simulation.checkpoints = false;
  simulation.run();
  EXPECT_TRUE(simulation.scheduler->replay_log().empty());
  EXPECT_EQ(simulation.count("finished"), 20);
}

TEST(PbtTest, APopulationImprovesWithinItsBounds) {
  for (const bool synch : {false, true})
    for (const int slots : {20, 3}) {
      Simulation simulation = population({{"synch", synch}});
      simulation.slots = slots;
      simulation.run();
      EXPECT_EQ(simulation.standstills, 0);
      EXPECT_EQ(simulation.count("finished"), 20);
      EXPECT_TRUE(simulation.scheduler->donors().empty());
      const Value log = simulation.scheduler->replay_log();
      EXPECT_GT(log.size(), 20U);
      for (const Value& entry : log) {
        const double before = entry["old_config"]["lr"], after = entry["new_config"]["lr"];
        EXPECT_GE(after, 1e-4);
        EXPECT_LE(after, 1e-1);
        EXPECT_NE(before, after);
        EXPECT_NE(entry["trial"], entry["donor"]);
        EXPECT_EQ(entry["new_config"]["layers"], 3);
      }
      double worst = 0;
      for (const auto& trial : simulation.all) worst = std::max(worst, simulation.value(0, 0, trial.config));
      EXPECT_LT(worst, 0.08);  // of 0.059 (the largest), 0.03 (the smallest) at first: bounds hold, most are near
      EXPECT_EQ(simulation.reached(100), 20);
    }
}

TEST(PbtTest, TrialsTakeTurnsIfThereAreMoreThanSlots) {
  Simulation simulation = population({{"quantile_fraction", 0}});
  simulation.slots = 2;
  simulation.run();
  // One trial waits as soon as there is no slot, so that the second interval of a trial comes after its turn.
  const auto first_end = std::ranges::find(simulation.events, "finished 0") - simulation.events.begin();
  int started = 0;
  for (std::ptrdiff_t at = 0; at < first_end; ++at)
    started += simulation.events[static_cast<std::size_t>(at)].starts_with("start ") ? 1 : 0;
  EXPECT_GT(started, 20);
}

TEST(PbtTest, SynchComparesAllAtTheSameTime) {
  Simulation simulation = population({{"synch", true}, {"burn_in_period", 15}});
  simulation.slots = 4;
  simulation.run();
  const Value log = simulation.scheduler->replay_log();
  ASSERT_FALSE(log.empty());
  for (const Value& entry : log) EXPECT_EQ(entry["time"], entry["donor_time"]);
  EXPECT_EQ(log[0]["time"], 15);
  EXPECT_EQ(log.size() % 5, 0U);  // a quarter of 20, each time
}

TEST(PbtTest, AddsWhatAConfigurationLacks) {
  const auto scheduler = make_scheduler({{"kind", "pbt"}, {"hyperparam_mutations", {{"a", {{"lr", kRate}}}}}}, 1);
  const Value config = scheduler->complete_config(0, {{"a", {{"x", 1}}}});
  EXPECT_EQ(config["a"]["x"], 1);
  EXPECT_GE(config["a"]["lr"].get<double>(), 1e-4);
  EXPECT_EQ(scheduler->complete_config(0, {{"a", {{"lr", 5}}}}), (Value{{"a", {{"lr", 5}}}}));
  EXPECT_NE(scheduler->complete_config(1, Value::object()), scheduler->complete_config(2, Value::object()));
}

TEST(PbtTest, APolicyOfTheLogIsReplayed) {
  Simulation simulation = population({});
  simulation.run();
  const Value log = simulation.scheduler->replay_log();
  const TrialNumber trial = log.back()["trial"];
  const Value policy = replay_policy(log, trial);
  ASSERT_FALSE(policy.is_null());
  EXPECT_EQ(policy["policy"].back()[1], simulation.all[static_cast<std::size_t>(trial)].config);

  Simulation replay;
  replay.description = {{"kind", "pbt_replay"}, {"policy", policy["policy"]}};
  replay.trials = 1;
  replay.config = [&](TrialNumber) { return policy["config"]; };
  std::map<double, Value> used;
  replay.value = [&](TrialNumber, double time, const Value& config) {
    used[time] = config;
    return 0.0;
  };
  replay.run();
  EXPECT_EQ(replay.count("finished"), 1);
  EXPECT_EQ(used[1], policy["config"]);
  for (const Value& change : policy["policy"]) {
    const double time = change[0];
    if (time < 100) {
      EXPECT_EQ(used.at(time + 1), change[1]);
    }
  }
  EXPECT_TRUE(replay_policy(log, 1'000).is_null());
}

TEST(MutationsTest, ChangesByFactorNeighbourOrDraw) {
  const Value description = {{"rate", kRate},
                             {"size", domain({{"kind", "randint"}, {"lower", 1}, {"upper", 9}})},
                             {"step", domain({{"kind", "quniform"}, {"lower", 0}, {"upper", 1}, {"q", 0.25}})},
                             {"list", {10, 20, 30}},
                             {"word", domain({{"kind", "choice"}, {"values", {"a", "b", "c"}}})},
                             {"drawn", {{"$samples", {1.5, 2.5}}}}};
  const Mutations never(description, {.resample_probability = 0, .factors = {1.2, 0.8}});
  const Mutations always(description, {.resample_probability = 1, .factors = {1.2, 0.8}});
  const Value config = {{"rate", 0.09}, {"size", 2}, {"step", 0.5}, {"list", 10}, {"word", "b"}, {"drawn", 100.0}};
  std::map<std::string, std::set<Value>> seen, drawn;
  RandomNumbers random(1, 1);
  for (int round = 0; round < 1'000; ++round) {
    const Value moved = never.explored(config, random), anew = always.explored(config, random);
    for (const auto& [name, value] : moved.items()) seen[name].insert(value);
    for (const auto& [name, value] : anew.items()) drawn[name].insert(value);
  }
  EXPECT_EQ(seen["rate"], (std::set<Value>{0.09 * 0.8, 0.1}));  // at most the upper bound
  EXPECT_EQ(seen["size"], (std::set<Value>{1, 3}));
  EXPECT_EQ(seen["step"], (std::set<Value>{0.25, 0.75}));
  EXPECT_EQ(seen["list"], (std::set<Value>{10, 20}));
  EXPECT_EQ(seen["word"], (std::set<Value>{"a", "c"}));
  EXPECT_EQ(seen["drawn"], (std::set<Value>{80.0, 120.0}));
  EXPECT_EQ(drawn["size"].size(), 8U);
  EXPECT_EQ(drawn["step"], (std::set<Value>{0.0, 0.25, 0.5, 0.75, 1.0}));
  EXPECT_EQ(drawn["list"], (std::set<Value>{10, 20, 30}));
  EXPECT_EQ(drawn["drawn"], (std::set<Value>{1.5, 2.5}));
  EXPECT_GT(drawn["rate"].size(), 900U);
  EXPECT_TRUE(seen["size"].begin()->is_number_integer());
}

}  // namespace
}  // namespace lockstep::tune
