#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tune/random_numbers.h"
#include "tune/scheduler.h"

namespace lockstep::tune {

/// An experiment with invented trials: no process, no clock. One running trial after another, chosen at random, makes a
/// step and reports.
struct Simulation {
  Value description = {};
  int trials = 10;
  int slots = 4;
  std::int64_t steps = 100;  ///< a trial ends by itself after so many
  double fails = 0;          ///< probability per step
  int retries = 0;           ///< of a failed trial
  bool checkpoints = true;   ///< at every step
  std::uint64_t seed = 1;
  std::function<Value(TrialNumber)> config = [](TrialNumber) { return Value::object(); };
  std::function<double(TrialNumber, double time, const Value& config)> value = [](TrialNumber trial, double,
                                                                                  const Value&) {
    return RandomNumbers(7, static_cast<std::uint64_t>(trial)).uniform();
  };

  struct Trial {
    Value config;
    double time = 0, checkpoint = 0;
    int failures = 0;
    double furthest = 0;
    std::string end;  ///< "", finished, stopped, dropped, failed
  };

  std::vector<Trial> all = {};
  std::vector<std::string> events = {};  ///< all that happened, in order
  int standstills = 0;
  int most_running = 0;
  std::unique_ptr<Scheduler> scheduler = nullptr;

  void run() {
    scheduler = make_scheduler(description, seed);
    RandomNumbers random(seed, 12345);
    while (true) {
      while (static_cast<int>(running.size()) < slots && start()) {
      }
      most_running = std::max(most_running, static_cast<int>(running.size()));
      if (running.empty()) {
        if (!fresh.empty() || !paused.empty()) ++standstills;
        return;
      }
      auto at = running.begin();
      std::advance(at, random.below(static_cast<std::int64_t>(running.size())));
      step(*at, random);
    }
  }

  int count(const std::string& end) const {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const Trial& one) { return one.end == end; }));
  }
  /// Trials that got as far as this time.
  int reached(double time) const {
    return static_cast<int>(
        std::count_if(all.begin(), all.end(), [&](const Trial& one) { return one.furthest >= time; }));
  }

  // Below: how it runs; an aggregate has no private part.
  std::set<TrialNumber> fresh = {}, paused = {}, running = {};

  bool start() {
    if (fresh.empty() && static_cast<int>(all.size()) < trials) {
      const auto number = static_cast<TrialNumber>(all.size());
      all.push_back({.config = scheduler->complete_config(number, config(number)), .end = {}});
      scheduler->on_added(number, all.back().config);
      fresh.insert(number);
    }
    if (fresh.empty() && paused.empty()) return false;
    scheduler->more_to_come(static_cast<int>(all.size()) < trials);
    const auto chosen = scheduler->choose({fresh.begin(), fresh.end()}, {paused.begin(), paused.end()});
    const bool some_dropped = drop();
    if (!chosen) return some_dropped;
    const bool was_paused = paused.erase(*chosen) == 1;
    EXPECT_EQ(fresh.erase(*chosen) + (was_paused ? 1 : 0), 1U);
    Trial& trial = all[static_cast<std::size_t>(*chosen)];
    EXPECT_EQ(trial.end, "");
    if (was_paused)
      if (const auto exploit = scheduler->take_exploit(*chosen)) {
        trial.config = exploit->config;
        trial.checkpoint = all[static_cast<std::size_t>(exploit->donor)].checkpoint;
      }
    trial.time = trial.checkpoint;
    running.insert(*chosen);
    events.push_back("start " + std::to_string(*chosen) + " at " + std::to_string(trial.time) + trial.config.dump());
    return true;
  }

  bool drop() {
    bool any = false;
    for (const TrialNumber number : scheduler->take_dropped()) {
      any = true;
      EXPECT_EQ(paused.erase(number) + fresh.erase(number), 1U) << number;
      end(number, "dropped");
    }
    return any;
  }

  void end(TrialNumber number, const std::string& how) {
    Trial& trial = all[static_cast<std::size_t>(number)];
    EXPECT_EQ(trial.end, "");
    trial.end = how;
    running.erase(number);
    events.push_back(how + " " + std::to_string(number));
    scheduler->on_ended(number, how == "failed");
    drop();
  }

  void step(TrialNumber number, RandomNumbers& random) {
    Trial& trial = all[static_cast<std::size_t>(number)];
    if (random.uniform() < fails) {
      if (trial.failures++ >= retries) return end(number, "failed");
      running.erase(number);
      fresh.insert(number);
      return;
    }
    trial.time += 1;
    trial.furthest = std::max(trial.furthest, trial.time);
    if (checkpoints) trial.checkpoint = trial.time;
    const auto decision =
        scheduler->on_result(number, trial.time, value(number, trial.time, trial.config), checkpoints);
    events.push_back(std::to_string(number) + ": " + decision.why);
    EXPECT_EQ(decision.why.empty(), decision.kind == Decision::Kind::go_on);
    if (decision.kind == Decision::Kind::stop) return end(number, "stopped");
    if (decision.kind == Decision::Kind::pause) {
      running.erase(number);
      paused.insert(number);
      drop();
    } else if (trial.time >= static_cast<double>(steps)) {
      end(number, "finished");
    }
  }
};

}  // namespace lockstep::tune
