#pragma once

#include <lockstep/value.h>
#include <optional>
#include <vector>

namespace lockstep::tune {

/// A searcher, as TuneConfig::search_alg takes it. Each struct below converts to one. An option that is not given has
/// the default that stands beside it.
struct SearchAlgorithm {
  Value description = {{"kind", "random"}};
  std::vector<Value> points_to_evaluate{};  ///< configurations that are tried first; they may leave out parameters
};

inline namespace search {
// NOLINTBEGIN(google-explicit-constructor): a TuneConfig takes each of them as it is

/// Independent random values, and every grid point.
struct RandomSearch {
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// Every combination of values; a continuous domain is divided into `steps`.
struct GridSearch {
  std::optional<int> steps{};  ///< 5
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// A scrambled Sobol sequence: fills the space more evenly than random values.
struct SobolSearch {
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// Tree-structured Parzen estimator, multivariate; the usual choice for 30 trials or more.
struct TPESearch {
  std::optional<int> n_startup{};        ///< 10 random trials come first
  std::optional<int> n_candidates{};     ///< 24 are compared for each further trial
  std::optional<double> prior_weight{};  ///< 1: of the uniform density
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// TPE that learns from unfinished trials too, for HyperBandForBOHB.
struct BOHBSearch {
  std::optional<int> n_startup{};     ///< the number of dimensions and 2, but at least 10
  std::optional<int> n_candidates{};  ///< 24
  std::optional<double> eta{};        ///< 3
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// Covariance matrix adaptation: for real parameters and hundreds of trials.
struct CMAESSearch {
  std::optional<int> population{};  ///< by the number of dimensions
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// A Gaussian process with expected improvement: for few, expensive trials.
struct GPSearch {
  std::optional<int> n_startup{};  ///< 10
  std::optional<int> history{};    ///< 200: at most so many trials are learnt from
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// A genetic algorithm for several metrics: `.metric = {"loss", "size"}, .mode = {"min", "min"}`.
struct NSGA2Search {
  std::optional<int> population{};    ///< 50, with one metric 20
  std::optional<double> crossover{};  ///< 0.9
  std::vector<Value> points_to_evaluate{};
  operator SearchAlgorithm() const;
};

/// At most `max_concurrent` trials of the searcher run at once. With `batch`, it learns from them when all have ended.
struct ConcurrencyLimiter {
  SearchAlgorithm searcher{};
  int max_concurrent = 1;
  bool batch = false;
  operator SearchAlgorithm() const;
};

/// Tries each configuration `repeat` times; the searcher learns the mean.
struct Repeater {
  SearchAlgorithm searcher{};
  int repeat = 1;
  operator SearchAlgorithm() const;
};

// NOLINTEND(google-explicit-constructor)
}  // namespace search
}  // namespace lockstep::tune
