#pragma once

#include <concepts>
#include <cstdint>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::tune {

inline namespace search {

/// A searcher of one's own: derive from it, and give std::make_shared<Mine>() as TuneConfig::search_alg. It must choose
/// by its arguments and its own seed only, because an experiment that is restored is given a new object and repeats the
/// calls. They come one at a time, in the threads of trials. One that throws ends the experiment.
class Searcher {
 public:
  virtual ~Searcher() = default;
  /// Parameters of a new trial, nested as in the param_space, whose domains they must fit; what it leaves out is chosen
  /// at random, and a grid_search() by the experiment. Nothing: not before another trial has ended; if none runs, the
  /// search is over.
  virtual std::optional<Value> ask(std::int64_t trial) = 0;
  /// The last values of a trial, one for each metric (0 without a metric); empty: it failed.
  virtual void tell(std::int64_t trial, const std::vector<double>& values) = 0;
  /// A value of the first metric on the way, at this value of the scheduler's time_attr.
  virtual void observe(std::int64_t /*trial*/, double /*time*/, double /*value*/) {}
};

}  // namespace search

/// A searcher, as TuneConfig::search_alg takes it. Each struct below converts to one, and so does a std::shared_ptr to
/// a Searcher of one's own. An option that is not given has the default that stands beside it.
struct SearchAlgorithm {
  SearchAlgorithm() = default;
  SearchAlgorithm(Value description, std::vector<Value> points_to_evaluate, std::shared_ptr<Searcher> own = nullptr)
      : description(std::move(description)), points_to_evaluate(std::move(points_to_evaluate)), own(std::move(own)) {}
  template <std::derived_from<Searcher> Mine>
  SearchAlgorithm(std::shared_ptr<Mine> own)  // NOLINT(google-explicit-constructor): a TuneConfig takes it as it is
      : description({{"kind", "own"}}), own(std::move(own)) {}

  Value description = {{"kind", "random"}};
  std::vector<Value> points_to_evaluate{};  ///< configurations that are tried first; they may leave out parameters
  std::shared_ptr<Searcher> own{};
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

/// A searcher without an experiment: ask for a configuration, try it, tell its value.
///
///     tune::Search search({{"x", tune::uniform(-5, 5)}}, tune::TPESearch{}, {.seed = 1});
///     for (int i = 0; i < 100; ++i) {
///       const auto asked = search.ask();
///       search.tell(asked->id, loss(asked->config["x"]));
///     }
///     const double loss = search.best()->values[0];
///
/// For one thread at a time.
class Search {
 public:
  struct Options {
    std::vector<std::string> modes{"min"};  ///< one for each value that tell() gets
    std::optional<std::uint64_t> seed{};    ///< nothing: a different one every time
  };
  struct Asked {
    std::int64_t id = 0;
    Value config;
    std::vector<double> values{};  ///< what tell() got
  };

  /// Throws ConfigError if an argument is wrong.
  explicit Search(const Value& param_space, const SearchAlgorithm& searcher = {});
  Search(const Value& param_space, const SearchAlgorithm& searcher, const Options& options);
  Search(Search&&) noexcept;
  Search& operator=(Search&&) noexcept;
  ~Search();

  /// Nothing: every point was tried, or there is none until the next tell().
  std::optional<Asked> ask();
  /// The value of an asked configuration, or one for each mode; none: it failed. Throws ConfigError if the id is not
  /// one that ask() returned, told once.
  void tell(std::int64_t id, double value);
  void tell(std::int64_t id, const std::vector<double>& values);

  /// The best one so far, for one mode. Values that are not finite do not count.
  std::optional<Asked> best() const;
  /// Those that no other one beats in every value, for several modes.
  std::vector<Asked> get_pareto_front() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace search
}  // namespace lockstep::tune
