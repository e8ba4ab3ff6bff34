// Experiments of trials that do nothing, in a new directory, and what the scheduler and the database cost; for
// benchmarks/tune_speed.py:
//
//     tune_benchmark trials DIRECTORY COUNT     runs trials that report once
//     tune_benchmark results DIRECTORY COUNT    reports of one trial
//     tune_benchmark reopen DIRECTORY           opens what `trials` made, until the next trial can start
//     tune_benchmark asha COUNT                 decisions about trials of 10 reports
//
// Prints a JSON object. Rates include the last sync: all is durable.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "base/json.h"
#include "tune/experiment.h"
#include "tune/random_numbers.h"

namespace lockstep::tune {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double resident_bytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * 4096;
}

ExperimentSettings settings(int trials) {
  ExperimentSettings settings;
  settings.name = "benchmark";
  for (const char* name : {"a", "b", "c", "d", "e"})
    settings.param_space[name] = {{"$domain", {{"kind", "uniform"}, {"lower", 0}, {"upper", 1}}}};
  settings.num_samples = trials;
  settings.metrics = {"loss"};
  settings.modes = {"min"};
  return settings;
}

Value run_trials(const std::filesystem::path& directory, int count) {
  auto experiment = Experiment::create(directory, settings(count));
  const int first = count / 10;  // what grows once is not counted
  double memory = 0;
  const double begin = seconds();
  for (int i = 0; i < count; ++i) {
    if (i == first) {
      experiment->sync();
      memory = resident_bytes();
    }
    const auto start = experiment->next();
    experiment->on_report(start->trial, {{"loss", start->config.at("a")}, {"training_iteration", 1}}, "");
    experiment->on_ended(start->trial, "");
  }
  experiment->sync();
  const double took = seconds() - begin;
  return {{"rate", count / took}, {"bytes", (resident_bytes() - memory) / (count - first)}};
}

Value run_results(const std::filesystem::path& directory, int count) {
  auto experiment = Experiment::create(directory, settings(1));
  const auto start = experiment->next();
  const double begin = seconds();
  for (int i = 0; i < count; ++i)
    experiment->on_report(start->trial, {{"loss", 1.0 / (i + 1)}, {"training_iteration", i + 1}}, "");
  experiment->sync();
  return {{"rate", count / (seconds() - begin)}};
}

Value reopen(const std::filesystem::path& directory) {
  const double begin = seconds();
  const auto experiment = Experiment::open(directory, {});
  experiment->next();
  return {{"seconds", seconds() - begin}, {"trials", experiment->size()}};
}

Value run_asha(int count) {
  const auto scheduler = make_scheduler({{"kind", "asha"}, {"max_t", 1000}}, 1);
  std::int64_t decisions = 0;
  const double begin = seconds();
  for (int trial = 0; trial < count / 10; ++trial) {
    scheduler->on_added(trial, Value::object());
    RandomNumbers numbers(1, static_cast<std::uint64_t>(trial));
    for (int time = 1, at = 0; at < 10; ++at, time *= 2) {
      ++decisions;
      if (scheduler->on_result(trial, time, numbers.uniform(), false).kind != Decision::Kind::go_on) break;
    }
    scheduler->on_ended(trial, false);
  }
  return {{"microseconds", (seconds() - begin) * 1e6 / static_cast<double>(decisions)}, {"decisions", decisions}};
}

Value run(const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  if (what == "trials") return run_trials(arguments.at(1), std::stoi(arguments.at(2)));
  if (what == "results") return run_results(arguments.at(1), std::stoi(arguments.at(2)));
  if (what == "reopen") return reopen(arguments.at(1));
  if (what == "asha") return run_asha(std::stoi(arguments.at(1)));
  throw std::runtime_error("there is no benchmark " + what);
}

}  // namespace
}  // namespace lockstep::tune

int main(int count, char** arguments) {
  try {
    std::cout << lockstep::to_json(lockstep::tune::run({arguments + 1, arguments + count})) << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
