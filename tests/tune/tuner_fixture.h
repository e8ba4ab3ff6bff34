#pragma once

#include <gmock/gmock.h>
#include <lockstep/tune.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace lockstep {

class TunerTest : public testing::Test {
 protected:
  TunerTest() { std::filesystem::create_directories(place_); }
  ~TunerTest() override { std::filesystem::remove_all(place_); }

  TunerOptions options(Value space, tune::TuneConfig config, const std::string& name = "search") const {
    if (!config.seed) config.seed = 7;
    TunerOptions made{.param_space = std::move(space), .tune_config = std::move(config)};
    made.run_config.name = name;
    made.run_config.storage_path = place_;
    made.run_config.verbose = 0;
    return made;
  }

  /// The configurations of all trials.
  static std::vector<Value> configs(const ResultGrid& grid) {
    std::vector<Value> all;
    for (const Result& result : grid) all.push_back(result.config);
    return all;
  }

  std::filesystem::path place_ =
      std::filesystem::temp_directory_path() / ("lockstep-tuner-" + std::to_string(::getpid()));
};

}  // namespace lockstep
