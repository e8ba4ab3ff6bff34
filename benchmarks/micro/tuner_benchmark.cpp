// Trials per second of a function that does nothing, in threads of one process, durable in the experiment's database:
//
//     tuner_benchmark [TRIALS] [THREADS] [DIRECTORY]
//
// prints the time from the start of fit() to its end, when all trials are on disk, for the function and for the
// database alone, which gets the same calls from one thread.

#include <lockstep/tune.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tune/experiment.h"

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

const lockstep::Value kSpace = {{"x", lockstep::tune::uniform(0, 1)}};

double tuner(const fs::path& place, int trials, int threads) {
  lockstep::TunerOptions options{.param_space = kSpace,
                                 .tune_config = {.metric = "loss", .mode = "min", .num_samples = trials, .seed = 1}};
  options.tune_config.max_concurrent_trials = threads;
  options.run_config = {.name = "tuner", .storage_path = place, .verbose = 0};
  lockstep::Tuner tuner([](const lockstep::Value& config) { return lockstep::Value{{"loss", config["x"]}}; }, options);
  const auto begin = Clock::now();
  tuner.fit();
  return seconds_since(begin);
}

double database(const fs::path& place, int trials) {
  lockstep::tune::ExperimentSettings settings;
  settings.name = "database";
  settings.param_space = kSpace;
  settings.num_samples = trials;
  settings.metrics = {"loss"};
  settings.modes = {"min"};
  settings.seed = 1;
  const auto experiment = lockstep::tune::Experiment::create(place / "database", settings);
  const auto begin = Clock::now();
  while (const auto start = experiment->next()) {
    experiment->on_report(start->trial, {{"loss", start->config["x"]}, {"training_iteration", 1}}, "");
    experiment->on_ended(start->trial, "");
  }
  experiment->sync();
  return seconds_since(begin);
}

}  // namespace

int main(int argc, char** argv) {
  const int trials = argc > 1 ? std::atoi(argv[1]) : 300'000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const fs::path place =
      argc > 3 ? fs::path(argv[3]) : fs::temp_directory_path() / ("lockstep-tuner-" + std::to_string(::getpid()));
  fs::create_directories(place);
  const double of_database = database(place, trials);
  const double of_tuner = tuner(place, trials, threads);
  std::printf("%d trials on %d threads: %.2f s, %.0f trials/s; the database alone: %.2f s, %.0f trials/s\n", trials,
              threads, of_tuner, trials / of_tuner, of_database, trials / of_database);
  fs::remove_all(place);
}
