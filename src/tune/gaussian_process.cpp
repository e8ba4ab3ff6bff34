#include "tune/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tune/domain.h"

namespace lockstep::tune {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kLeastNoise = 1e-6;

/// The kernel at a squared distance, and its derivative by that.
std::pair<double, double> matern(double squared) {
  const double r = std::sqrt(5 * squared);
  const double decay = std::exp(-r);
  return {(1 + r + r * r / 3) * decay, -5.0 / 6 * (1 + r) * decay};
}

}  // namespace

GaussianProcess::GaussianProcess(const Space& space) : space_(space) {
  for (const auto& dimension : space.dimensions())
    is_category_.push_back(dimension.domain.kind == Domain::Kind::category);
  const auto d = static_cast<Index>(is_category_.size());
  parameters_.setZero(d + 2);
  parameters_[d + 1] = std::log(1e-3);
}

VectorXd GaussianProcess::place_of(const Point& point) const {
  VectorXd place(static_cast<Index>(point.size()));
  for (std::size_t d = 0; d < point.size(); ++d) {
    const auto at = static_cast<Index>(d);
    if (is_category_[d]) {
      place[at] = std::isnan(point[d]) ? -1 : point[d];
    } else {
      place[at] = std::isnan(point[d]) ? 0.5 : to_unit(space_.dimensions()[d].domain, point[d]);
    }
  }
  return place;
}

VectorXd GaussianProcess::differences(const VectorXd& a, const VectorXd& b) const {
  VectorXd result(a.size());
  for (Index d = 0; d < a.size(); ++d) {
    const double difference = a[d] - b[d];
    result[d] = is_category_[static_cast<std::size_t>(d)] ? (difference != 0 ? 1 : 0) : difference * difference;
  }
  return result;
}

double GaussianProcess::evaluate(const VectorXd& parameters, VectorXd& gradient) const {
  const Index n = values_.size(), d = parameters.size() - 2;
  const VectorXd inverse = parameters.head(d).array().exp();
  const double variance = std::exp(parameters[d]), noise = std::exp(parameters[d + 1]) + kLeastNoise;
  MatrixXd squared = MatrixXd::Zero(n, n);
  for (Index k = 0; k < d; ++k) squared += inverse[k] * differences_[static_cast<std::size_t>(k)];
  MatrixXd kernel(n, n), slope(n, n);
  for (Index column = 0; column < n; ++column) {
    for (Index row = 0; row <= column; ++row) {
      const auto [value, derivative] = matern(squared(row, column));
      kernel(row, column) = kernel(column, row) = variance * value;
      slope(row, column) = slope(column, row) = variance * derivative;
    }
  }
  MatrixXd noisy = kernel;
  noisy.diagonal().array() += noise;
  const Eigen::LLT<MatrixXd> factor(noisy);
  gradient.setZero(parameters.size());
  if (factor.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
  const VectorXd solved = factor.solve(values_);
  const MatrixXd matrix_l = factor.matrixL();
  double result = -0.5 * values_.dot(solved) - matrix_l.diagonal().array().log().sum();
  // The derivative of the likelihood by an entry of the kernel.
  const MatrixXd by_entry = 0.5 * (solved * solved.transpose() - factor.solve(MatrixXd::Identity(n, n)));
  const MatrixXd by_squared = by_entry.cwiseProduct(slope);
  for (Index k = 0; k < d; ++k) {
    gradient[k] = inverse[k] * by_squared.cwiseProduct(differences_[static_cast<std::size_t>(k)]).sum();
  }
  gradient[d] = by_entry.cwiseProduct(kernel).sum();
  gradient[d + 1] = by_entry.trace() * (noise - kLeastNoise);
  // Beliefs: lengths are about 1 and never tiny or huge, the variance is about 1, there is little noise.
  for (Index k = 0; k < d; ++k) {
    result -= 0.1 / inverse[k] + 0.1 * inverse[k];
    gradient[k] += 0.1 / inverse[k] - 0.1 * inverse[k];
  }
  result += parameters[d] - variance + 0.1 * parameters[d + 1] - 30 * (noise - kLeastNoise);
  gradient[d] += 1 - variance;
  gradient[d + 1] += 0.1 - 30 * (noise - kLeastNoise);
  return result;
}

void GaussianProcess::fit(const MatrixXd& places, const VectorXd& values) {
  places_ = places;
  values_ = values;
  const Index n = values.size();
  differences_.assign(is_category_.size(), MatrixXd::Zero(n, n));
  for (Index a = 0; a < n; ++a) {
    for (Index b = 0; b < a; ++b) {
      const VectorXd difference = differences(places.col(a), places.col(b));
      for (std::size_t d = 0; d < differences_.size(); ++d) {
        differences_[d](a, b) = differences_[d](b, a) = difference[static_cast<Index>(d)];
      }
    }
  }
  // Resilient steps: each parameter's own step grows while its slope keeps its sign, and shrinks when that changes. It
  // needs no line search, and parameters of the last fit are near.
  constexpr int kSteps = 30;
  VectorXd now = parameters_, gradient, before = VectorXd::Zero(now.size());
  VectorXd steps = VectorXd::Constant(now.size(), 0.1);
  double best = -std::numeric_limits<double>::infinity();
  for (int step = 0; step < kSteps; ++step) {
    const double value = evaluate(now, gradient);
    if (value > best) {
      best = value;
      parameters_ = now;
    }
    if (!std::isfinite(value) || gradient.cwiseAbs().maxCoeff() < 1e-2) break;
    for (Index k = 0; k < now.size(); ++k) {
      const double same = gradient[k] * before[k];
      if (same > 0) steps[k] = std::min(steps[k] * 1.3, 1.0);
      if (same < 0) steps[k] *= 0.5;
      now[k] = std::clamp(now[k] + (gradient[k] > 0 ? steps[k] : gradient[k] < 0 ? -steps[k] : 0), -12.0, 8.0);
    }
    before = gradient;
  }
  factorize();
}

void GaussianProcess::factorize() {
  const Index n = values_.size(), d = parameters_.size() - 2;
  const VectorXd inverse = parameters_.head(d).array().exp();
  MatrixXd kernel(n, n);
  for (Index a = 0; a < n; ++a) {
    for (Index b = 0; b <= a; ++b) {
      const double squared = inverse.dot(differences(places_.col(a), places_.col(b)));
      kernel(a, b) = kernel(b, a) = std::exp(parameters_[d]) * matern(squared).first;
    }
  }
  double noise = std::exp(parameters_[d + 1]) + kLeastNoise;
  do {
    MatrixXd noisy = kernel;
    noisy.diagonal().array() += noise;
    factor_.compute(noisy);
    noise *= 10;
  } while (factor_.info() != Eigen::Success && noise < 1e3);
  solved_ = factor_.solve(values_);
}

void GaussianProcess::pretend(const VectorXd& place) {
  const double value = predict(place).first;
  places_.conservativeResize(Eigen::NoChange, places_.cols() + 1);
  places_.rightCols(1) = place;
  values_.conservativeResize(values_.size() + 1);
  values_[values_.size() - 1] = value;
  factorize();
}

std::pair<double, double> GaussianProcess::predict(const VectorXd& place) const {
  const Index n = values_.size(), d = parameters_.size() - 2;
  const VectorXd inverse = parameters_.head(d).array().exp();
  const double variance = std::exp(parameters_[d]);
  VectorXd kernel(n);
  for (Index k = 0; k < n; ++k) {
    double squared = 0;
    for (Index j = 0; j < d; ++j) {
      const double difference = place[j] - places_(j, k);
      squared += inverse[j] *
                 (is_category_[static_cast<std::size_t>(j)] ? (difference != 0 ? 1 : 0) : difference * difference);
    }
    kernel[k] = variance * matern(squared).first;
  }
  const double mean = kernel.dot(solved_);
  factor_.matrixL().solveInPlace(kernel);
  return {mean, std::sqrt(std::max(variance - kernel.squaredNorm(), 1e-12))};
}

}  // namespace lockstep::tune
