#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <lockstep/error.h>
#include <lockstep/result.h>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace tune {
class Experiment;
}

/// The results of an experiment, one per trial, in the order of their numbers. It reads the experiment's database:
/// results are made when they are asked for. Copies share it. For one thread at a time.
class ResultGrid {
 public:
  /// Reads an experiment, also one that runs or that Python made. Throws StorageError if there is none.
  static ResultGrid from_path(const std::filesystem::path& experiment);

  std::size_t size() const;
  /// Throws ConfigError if there is no such trial.
  Result operator[](std::size_t trial) const;

  /// The best trial by its last result, or with `scope` "all" by its best one; "avg", "last-5-avg" and "last-10-avg"
  /// compare averages. An empty metric or mode is that of the TuneConfig. Failed trials do not count, and with
  /// `filter_nan_and_inf` neither do such values. Throws ConfigError if there is no such trial.
  Result get_best_result(const std::string& metric = "", const std::string& mode = "",
                         const std::string& scope = "last", bool filter_nan_and_inf = true) const;
  /// The trials that no other one beats in every metric, by their last results. Without arguments: the metrics of the
  /// TuneConfig.
  std::vector<Result> get_pareto_front(const std::vector<std::string>& metrics = {},
                                       const std::vector<std::string>& modes = {}) const;

  /// Failed trials, and those that ended without an error.
  std::size_t num_errors() const;
  std::size_t num_terminated() const;
  /// Of the failed trials.
  std::vector<TrainingError> errors() const;
  /// The directory of the experiment.
  const std::filesystem::path& experiment_path() const { return path_; }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Result;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Result;

    Iterator(const ResultGrid& grid, std::size_t trial) : grid_(&grid), trial_(trial) {}
    Result operator*() const { return (*grid_)[trial_]; }
    Iterator& operator++() {
      ++trial_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return trial_ == other.trial_; }

   private:
    const ResultGrid* grid_;
    std::size_t trial_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  std::shared_ptr<const tune::Experiment> experiment_;
  std::filesystem::path path_;
};

}  // namespace lockstep
