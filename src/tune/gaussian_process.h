#pragma once

#include <Eigen/Dense>
#include <utility>
#include <vector>

#include "tune/space.h"

namespace lockstep::tune {

/// A Gaussian process over the dimensions of a space: Matern kernel with smoothness 5/2, a length per dimension, and
/// noise. Places are in [0, 1]; categories differ or not; a dimension that is not active is in the middle. Its
/// parameters are the most probable ones, given weak beliefs about them.
class GaussianProcess {
 public:
  explicit GaussianProcess(const Space& space);

  /// A point as the columns that the other functions take.
  Eigen::VectorXd place_of(const Point& point) const;
  /// Fits parameters to values of mean 0 and deviation 1, beginning at those of the last fit. `places` has a column per
  /// value. O(n^3).
  void fit(const Eigen::MatrixXd& places, const Eigen::VectorXd& values);
  /// Adds a place with the value that is expected there. O(n^3).
  void pretend(const Eigen::VectorXd& place);
  /// The mean and the deviation at a place. O(n^2).
  std::pair<double, double> predict(const Eigen::VectorXd& place) const;

 private:
  /// The squared differences of two places, by dimension.
  Eigen::VectorXd differences(const Eigen::VectorXd& a, const Eigen::VectorXd& b) const;
  /// Returns the logarithm of the probability of the parameters, and sets its gradient.
  double evaluate(const Eigen::VectorXd& parameters, Eigen::VectorXd& gradient) const;
  void factorize();

  Space space_;
  std::vector<bool> is_category_;
  /// Logarithms: inverse squared length of each dimension, variance, noise.
  Eigen::VectorXd parameters_;
  Eigen::MatrixXd places_;
  Eigen::VectorXd values_;
  std::vector<Eigen::MatrixXd> differences_;  ///< between all places, by dimension
  Eigen::LLT<Eigen::MatrixXd> factor_;
  Eigen::VectorXd solved_;
};

}  // namespace lockstep::tune
