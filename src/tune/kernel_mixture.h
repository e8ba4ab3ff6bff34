#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <utility>
#include <vector>

#include "tune/random_numbers.h"
#include "tune/searcher.h"

namespace lockstep::tune {

/// Densities over some dimensions of a space that are always active together, relative to the uniform density: a
/// mixture with a kernel per point and the uniform density itself. In a kernel, dimensions are independent: truncated
/// normal on [0, 1] if they have an order, as wide as the distance to the farther neighbour; else the kernel's own
/// choice with most of the mass. Newer kernels weigh more. Beyond `capacity`, the oldest is left out.
class KernelMixture {
 public:
  KernelMixture(const Space& space, const std::vector<int>& dimensions, std::size_t capacity, double prior_weight);

  /// Adds the kernel of a trial that has none.
  void insert(TrialNumber trial, const Point& point);
  /// Removes the kernel of a trial, if it has one.
  void erase(TrialNumber trial);

  /// Sets the dimensions of the mixture to random values, or to those of `fixed`, as in PointSearcher::ask.
  void draw(Point& point, const Point& fixed, RandomNumbers& random) const;
  /// The logarithm of the density.
  double log_density(const Point& point) const;

 private:
  using Slot = std::uint32_t;

  /// A dimension: what the kernels' densities need, by slot. Floats: most of the time of a choice goes into these, and
  /// they are exact enough.
  struct Column {
    int dimension = 0;
    bool is_category = false;
    Eigen::ArrayXf place;      ///< in [0, 1], or the index of the choice
    Eigen::ArrayXf precision;  ///< 1 / (2 sigma^2); not of a category
    Eigen::ArrayXf log_scale;  ///< of the density; not of a category
    std::vector<float> step;   ///< the width of the value's interval in [0, 1]; 0 if the domain is continuous
    std::vector<std::pair<float, Slot>> order;  ///< places and slots, sorted; not of a category
  };

  Slot free_slot();
  void set_widths(Column& column, std::size_t begin, std::size_t end);
  /// Follows a change of the kernels: the least width, the weights, and the sums of scales.
  void update();
  double draw_value(const Column& column, Slot slot, RandomNumbers& random) const;

  Space space_;
  std::size_t capacity_;
  double prior_weight_;
  float least_sigma_ = 1;
  double share_ = 1;  ///< of each choice that is not the kernel's own
  std::vector<Column> columns_;
  std::vector<std::pair<TrialNumber, Slot>> kernels_;  ///< sorted
  std::vector<Slot> free_;
  Slot used_ = 0;           ///< slots from here on were never used
  Eigen::ArrayXf weights_;  ///< 0: the slot is free
  double total_weight_ = 0;
  Eigen::ArrayXf log_scales_;  ///< sums over all columns
  mutable Eigen::ArrayXf exponents_;
};

}  // namespace lockstep::tune
