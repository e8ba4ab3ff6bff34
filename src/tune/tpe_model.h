#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tune/kernel_mixture.h"

namespace lockstep::tune {

struct TpeSettings {
  std::int64_t startup = 10;     ///< points that are random before the model is used
  std::int64_t candidates = 24;  ///< points drawn for each that is chosen
  double prior_weight = 1;       ///< of the uniform density, in kernels
};

/// A model of which points are good: the tree-structured Parzen estimator of Bergstra et al. (2011), with joint kernels
/// over dimensions that are active together. Points of unfinished trials count as bad, so that parallel trials differ;
/// so do those of failed ones. It remembers the best 25 points and the newest 1,024, so a choice takes the same time
/// after any number of trials.
class TpeModel {
 public:
  TpeModel(const Space& space, TpeSettings settings);

  void start(TrialNumber trial, const Point& point);
  /// A trial that was not started, or is finished already, is ignored. Infinite: it failed.
  void finish(TrialNumber trial, double value);
  /// A started trial will not be finished.
  void forget(TrialNumber trial);
  /// The number of finished trials.
  std::int64_t size() const { return finished_; }

  Point choose(const Point& fixed, RandomNumbers& random) const;

 private:
  /// Dimensions with the same parent and value of it. Groups are chosen one after the other: what is good inside of a
  /// choice is learnt from the points that have it.
  struct Group {
    int first;  ///< its first dimension: active if the group is
    KernelMixture good, others;
  };
  struct Result {
    double value;
    TrialNumber trial;
    Point point;
    bool is_good = false;
  };

  /// Moves a point between the good ones and the others.
  void set_good(Result& result, bool is_good);

  Space space_;
  TpeSettings settings_;
  std::vector<Group> groups_;  ///< parents first
  std::unordered_map<TrialNumber, Point> unfinished_;
  std::vector<Result> best_;  ///< sorted
  std::int64_t finished_ = 0;
};

}  // namespace lockstep::tune
