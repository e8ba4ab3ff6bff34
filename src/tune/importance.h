#pragma once

#include <cstdint>
#include <vector>

#include "tune/space.h"

namespace lockstep::tune {

/// How much of the variation of a metric one parameter explains, as a share of the whole from 0 to 1.
struct Importance {
  double alone = 0;  ///< by itself, averaged over all values of the other parameters
  double total = 0;  ///< with all of its interactions; at least `alone`
};

struct ForestOptions {
  int trees = 64;
  int samples = 2048;  ///< of each tree at most; more trials are sampled
  int leaves = 256;    ///< of each tree, about
  std::uint64_t seed = 0;
};

/// A random forest of regression trees over the points of a space: a model of a metric, from which the functional
/// analysis of variance (fANOVA) is exact, because each tree is constant in each box of a partition of the space. The
/// other parameters of a box count by the share of their values in it, as the domains would draw them. A parameter that
/// depends on a choice is split only where that choice was made.
///
/// The same points, values and options give the same forest. Constant after fit(); any thread may read.
class Forest {
 public:
  /// Learns from one point and value per trial. Trials without a finite value are left out. Values far outside of the
  /// others (10 interquartile ranges) are moved to that distance, so that a trial that diverged does not hide the rest.
  /// Throws ConfigError if the sizes of the arguments do not match.
  static Forest fit(const std::vector<Dimension>& dimensions, const std::vector<Point>& points,
                    const std::vector<double>& values, const ForestOptions& options = {});

  /// One per dimension; all 0 if the values do not differ.
  std::vector<Importance> importance() const;
  /// What the forest expects if these dimensions have these values, averaged over all other dimensions; NaN in `point`:
  /// averaged over, too. NaN if there was no trial.
  double marginal(const Point& point) const;

 private:
  /// The values of one dimension in a box: an interval of [0, 1], or the choices.
  struct Side {
    double low = 0, high = 1;
    std::vector<bool> choices;  ///< category: which are in
    double share = 1;           ///< of all values
  };
  struct Box {
    std::vector<Side> sides;
    double value = 0;
    double weight = 1;  ///< product of the shares
  };
  using Tree = std::vector<Box>;
  friend class TreeGrower;

  static double overlap(const Side& a, const Side& b);

  std::vector<Dimension> dimensions_;
  std::vector<Tree> trees_;
};

/// The place of a value among all values of its domain, from 0 to 1: as many lie below as the domain would draw there.
double place_in(const Domain& domain, double value);
/// The value at a place from 0 to 1; the inverse of place_in().
double value_at(const Domain& domain, double place);

}  // namespace lockstep::tune
