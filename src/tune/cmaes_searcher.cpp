#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tune/domain.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

/// The constants of Hansen's tutorial (arXiv:1604.00772, table 1), with negative weights for bad points.
struct CmaConstants {
  CmaConstants(double d, int population) {
    weights.resize(population);
    for (int n = 0; n < population; ++n) weights[n] = std::log((population + 1) / 2.0) - std::log(n + 1.0);
    parents = population / 2;
    const auto good = weights.head(parents), bad = weights.tail(population - parents);
    effective = good.sum() * good.sum() / good.squaredNorm();
    const double bad_effective = bad.sum() * bad.sum() / std::max(bad.squaredNorm(), 1e-300);
    c_one = 2 / ((d + 1.3) * (d + 1.3) + effective);
    c_mu = std::min(1 - c_one, 2 * (effective - 2 + 1 / effective) / ((d + 2) * (d + 2) + effective));
    const double bad_sum =
        std::min({1 + c_one / c_mu, 1 + 2 * bad_effective / (effective + 2), (1 - c_one - c_mu) / (d * c_mu)});
    const double positive = good.sum(), negative = -bad.sum();
    for (int n = 0; n < population; ++n) {
      weights[n] *= n < parents ? 1 / positive : bad_sum / std::max(negative, 1e-300);
    }
    c_sigma = (effective + 2) / (d + effective + 5);
    damping = 1 + 2 * std::max(0.0, std::sqrt((effective - 1) / (d + 1)) - 1) + c_sigma;
    c_path = (4 + effective / d) / (d + 4 + 2 * effective / d);
    expected_norm = std::sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d));
  }

  VectorXd weights;
  int parents;
  double effective, c_one, c_mu, c_sigma, damping, c_path, expected_norm;
};

/// The distribution that points are drawn from, in [0, 1]^d.
class CmaState {
 public:
  CmaState(int dimensions, int population)
      : constants_(dimensions, population),
        mean_(VectorXd::Constant(dimensions, 0.5)),
        covariance_(MatrixXd::Identity(dimensions, dimensions)),
        axes_(covariance_),
        lengths_(VectorXd::Ones(dimensions)),
        path_(VectorXd::Zero(dimensions)),
        sigma_path_(path_) {}

  VectorXd draw(RandomNumbers& random) const {
    constexpr int kMostTries = 100;  // then the point is moved to the nearest bounds
    VectorXd place;
    for (int n = 0; n < kMostTries; ++n) {
      VectorXd normal(mean_.size());
      for (double& number : normal) number = random.normal();
      place = mean_ + sigma_ * (axes_ * lengths_.cwiseProduct(normal));
      if (place.minCoeff() >= 0 && place.maxCoeff() <= 1) return place;
    }
    return place.cwiseMax(0).cwiseMin(1);
  }

  /// `places`: a column per point, the best first.
  void update(const MatrixXd& places) {
    const double d = static_cast<double>(mean_.size());
    const MatrixXd inverse_root = axes_ * lengths_.cwiseInverse().asDiagonal() * axes_.transpose();
    MatrixXd steps = (places.colwise() - mean_) / sigma_;
    // A point that is not of this distribution (late, or fixed by the user) moves it no more than its own would.
    const double longest = std::sqrt(d) + 2 * d / (d + 2);
    for (Eigen::Index n = 0; n < steps.cols(); ++n) {
      const double length = (inverse_root * steps.col(n)).norm();
      if (length > longest) steps.col(n) *= longest / length;
    }
    const CmaConstants& c = constants_;
    const VectorXd step = steps.leftCols(c.parents) * c.weights.head(c.parents);
    mean_ = (mean_ + sigma_ * step).cwiseMax(0).cwiseMin(1);

    ++generation_;
    sigma_path_ =
        (1 - c.c_sigma) * sigma_path_ + std::sqrt(c.c_sigma * (2 - c.c_sigma) * c.effective) * (inverse_root * step);
    const double norm = sigma_path_.norm();
    const double settled = std::sqrt(1 - std::pow(1 - c.c_sigma, 2.0 * generation_));
    const bool is_steady = norm / settled < (1.4 + 2 / (d + 1)) * c.expected_norm;
    path_ = (1 - c.c_path) * path_;
    if (is_steady) path_ += std::sqrt(c.c_path * (2 - c.c_path) * c.effective) * step;

    VectorXd weights = c.weights;
    for (Eigen::Index n = 0; n < weights.size(); ++n) {
      if (weights[n] < 0) weights[n] *= d / std::max((inverse_root * steps.col(n)).squaredNorm(), 1e-8);
    }
    const double lost = is_steady ? 0 : c.c_one * c.c_path * (2 - c.c_path);
    covariance_ = (1 + lost - c.c_one - c.c_mu * c.weights.sum()) * covariance_ + c.c_one * path_ * path_.transpose() +
                  c.c_mu * steps * weights.asDiagonal() * steps.transpose();
    sigma_ = std::min(sigma_ * std::exp(std::min(1.0, c.c_sigma / c.damping * (norm / c.expected_norm - 1))), 1.0);
    decompose();
  }

 private:
  void decompose() {
    covariance_ = (covariance_ + covariance_.transpose()).eval() / 2;
    const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(covariance_);
    axes_ = solver.eigenvectors();
    lengths_ = solver.eigenvalues().cwiseMax(1e-20).cwiseSqrt();
    covariance_ = axes_ * lengths_.cwiseAbs2().asDiagonal() * axes_.transpose();
    sigma_ = std::max(sigma_, 1e-12);
  }

  CmaConstants constants_;
  VectorXd mean_;
  MatrixXd covariance_, axes_;
  VectorXd lengths_, path_, sigma_path_;
  double sigma_ = 1.0 / 6;
  int generation_ = 0;
};

/// CMA-ES over dimensions with an order; categories are random. A generation ends when as many trials as the
/// population have ended, so any number of trials may run at once.
class CmaesSearcher : public PointSearcher {
 public:
  CmaesSearcher(const SearcherSetup& setup, std::vector<int> ordered, int population)
      : space_(setup.space),
        seed_(setup.seed),
        ordered_(std::move(ordered)),
        population_(population),
        state_(static_cast<int>(ordered_.size()), population) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    VectorXd place = state_.draw(random);
    Point places(space_.dimensions().size(), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t n = 0; n < ordered_.size(); ++n) places[ordered_[n]] = place[static_cast<Eigen::Index>(n)];
    const Point point = filled(space_, fixed, [&](int d) {
      return from_unit(space_.dimensions()[d].domain, std::isnan(places[d]) ? random.uniform() : places[d]);
    });
    for (std::size_t n = 0; n < ordered_.size(); ++n) {
      const auto d = static_cast<std::size_t>(ordered_[n]);
      if (d >= fixed.size() || std::isnan(fixed[d]) || std::isnan(point[d])) continue;
      place[static_cast<Eigen::Index>(n)] = to_unit(space_.dimensions()[d].domain, fixed[d]);
    }
    unfinished_[trial] = std::move(place);
    return {Asked::Kind::point, point};
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    auto found = unfinished_.extract(trial);
    if (!found) return;
    results_.emplace_back(value_or_worst(values), std::move(found.mapped()));
    if (static_cast<int>(results_.size()) < population_) return;
    std::stable_sort(results_.begin(), results_.end(), [](auto& a, auto& b) { return a.first < b.first; });
    MatrixXd places(static_cast<Eigen::Index>(ordered_.size()), population_);
    for (int n = 0; n < population_; ++n) places.col(n) = results_[static_cast<std::size_t>(n)].second;
    results_.clear();
    state_.update(places);
  }

 private:
  Space space_;
  std::uint64_t seed_;
  std::vector<int> ordered_;
  int population_;
  CmaState state_;
  std::unordered_map<TrialNumber, VectorXd> unfinished_;
  std::vector<std::pair<double, VectorXd>> results_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_cmaes(SearcherOptions& options, const SearcherSetup& setup) {
  std::vector<int> ordered;
  for (std::size_t d = 0; d < setup.space.dimensions().size(); ++d) {
    if (setup.space.dimensions()[d].domain.kind != Domain::Kind::category) ordered.push_back(static_cast<int>(d));
  }
  const int usual = 4 + static_cast<int>(3 * std::log(std::max<double>(static_cast<double>(ordered.size()), 1)));
  const auto population = static_cast<int>(options.integer("population", usual, 4, 100'000));
  if (ordered.empty()) return make_random(options, setup);
  return std::make_unique<CmaesSearcher>(setup, std::move(ordered), population);
}

}  // namespace lockstep::tune
