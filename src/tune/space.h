#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::tune {

struct SpaceNode;

/// One parameter that is searched.
struct Domain {
  enum class Kind { real, integer, category, normal };

  Kind kind = Kind::real;
  double lower = 0;    ///< real, integer: the smallest value, a multiple of the quantum
  double upper = 1;    ///< real, integer: the largest value, itself included
  bool log = false;    ///< real, integer: uniform in the logarithm
  double quantum = 0;  ///< values are multiples of it; 0: any. At least 1 for integer
  double mean = 0;     ///< normal
  double sd = 1;       ///< normal
  int choices = 0;     ///< category: values are 0 .. choices - 1

  bool operator==(const Domain&) const = default;
};

/// A parameter and its place in the configuration.
struct Dimension {
  std::string name;  ///< keys joined by "/", as in "train_loop_config/lr"; of different choices it may be the same
  Domain domain;
  bool grid = false;     ///< of grid_search, always a category: every value is tried
  int parent = -1;       ///< the category dimension that this one depends on; -1: always active
  int parent_value = 0;  ///< active only if the parent has this value
};

/// A value for every dimension of a space: the number, or the index of the choice. NaN: not active in this point.
using Point = std::vector<double>;

/// A search space: a configuration in which some values are domains. A domain is an object with the one key "$domain",
/// as the functions of <lockstep/tune.h> and of `lockstep.tune` make it:
///
///     {"lr": {"$domain": {"kind": "loguniform", "lower": 1e-4, "upper": 0.1}},
///      "depth": {"$domain": {"kind": "choice", "values": [2, 4, {"$domain": {...}}]}}}
///
/// Kinds: grid_search, choice (`values`); uniform, quniform, loguniform, qloguniform (`lower`, `upper`, `q`); randint,
/// qrandint, lograndint, qlograndint (the same; `upper` is excluded, with `q` included); randn, qrandn (`mean`, `sd`,
/// `q`); sample_from (`id`), which stays in the configuration for the caller to replace. Values with `q` are the
/// multiples of it between the bounds. Domains may stand inside the values of a choice or grid_search, at any depth:
/// then they are active only if that value was chosen. A grid_search may not stand inside a choice, because it would
/// be tried only by chance. Dimensions are in the order of the text; parents come before what depends on them.
/// Immutable; copies share their state. Any thread may call.
class Space {
 public:
  /// Throws ConfigError that names the parameter, the bound or type that is wrong, and what it may be.
  static Space parse(const Value& param_space);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  /// The number of grid points: combinations of the values of active grid dimensions; 1 without any.
  std::int64_t grid_size() const;
  /// The values of the grid dimensions of grid point `index`; NaN for the other dimensions. The last grid_search of the
  /// text changes fastest.
  Point grid_point(std::int64_t index) const;
  /// Whether `dimension` is active, given the values of its parents in `point`.
  bool is_active(const Point& point, int dimension) const;
  /// The configuration of a point.
  Value config(const Point& point) const;
  /// The point of a configuration, as in points_to_evaluate. Dimensions that it leaves out are absent (NaN); constants
  /// may be left out too.
  /// Throws ConfigError if it names something that is no parameter, or a value outside of its domain.
  Point point(const Value& config) const;

 private:
  std::shared_ptr<const SpaceNode> root_;
  std::vector<Dimension> dimensions_;
};

}  // namespace lockstep::tune
