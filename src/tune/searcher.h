#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tune/space.h"

namespace lockstep::tune {

/// The number of a trial in its experiment: 0, 1, 2, ...
using TrialNumber = std::int64_t;

/// Chooses the points of trials. A searcher is a function of its seed and of the calls so far, in their order: an
/// experiment that is opened again repeats the calls and gets the same points. Random numbers of trial i come from
/// (seed, i). For one thread at a time.
class PointSearcher {
 public:
  struct Asked {
    enum class Kind { point, wait, exhausted };
    Kind kind = Kind::point;
    Point point;  ///< every active dimension has a value
  };

  virtual ~PointSearcher() = default;
  /// The point of a new trial. `fixed` has the values that the experiment has chosen already (the grid's, and
  /// those of points_to_evaluate); NaN: choose. `wait`: ask again after the next tell().
  virtual Asked ask(TrialNumber trial, const Point& fixed) = 0;
  /// The final values of a trial, one per metric, all to be minimised. Empty: the trial failed.
  virtual void tell(TrialNumber trial, const std::vector<double>& values) = 0;
  /// A result on the way, after `budget` iterations.
  virtual void observe(TrialNumber /*trial*/, double /*budget*/, double /*value*/) {}
};

/// Makes a searcher from its description {"kind": "tpe", ...options}. Kinds: random, grid, sobol, tpe, cmaes, gp,
/// nsga2, bohb; {"kind": "limit", "max_concurrent": n, "searcher": {...}}; {"kind": "repeat", "repeat": n,
/// "searcher": {...}}. Throws ConfigError if an option is unknown or wrong. `objectives`: the number of metrics.
/// {"kind": "own"} is `own`, if it is given.
std::unique_ptr<PointSearcher> make_searcher(const Value& description, const Space& space, std::uint64_t seed,
                                             int objectives, std::shared_ptr<PointSearcher> own = nullptr);

}  // namespace lockstep::tune
