#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "tune/domain.h"
#include "tune/gaussian_process.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

/// The logarithm of the expected improvement below `best`, for a normal value.
double log_improvement(double mean, double deviation, double best) {
  const double z = (best - mean) / deviation;
  if (z > -5) {
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    return std::log(deviation) + std::log(std::max(z * normal_cdf(z) + density, 1e-300));
  }
  // Far below, the sum is a difference of nearly equal numbers; its series is density / z^2.
  return std::log(deviation) - 0.5 * z * z - 0.5 * std::log(2 * std::numbers::pi) - 2 * std::log(-z);
}

/// A Gaussian process and the point of the highest expected improvement. Points of unfinished trials count with the
/// value that is expected there. The model has the best and the newest points, `history` at most.
class GpSearcher : public PointSearcher {
 public:
  GpSearcher(const SearcherSetup& setup, std::int64_t startup, std::size_t history)
      : space_(setup.space), seed_(setup.seed), startup_(startup), history_(history), process_(setup.space) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    const bool is_random = static_cast<std::int64_t>(results_.size()) < startup_ || space_.dimensions().empty();
    Asked asked{Asked::Kind::point, is_random ? random_point(space_, fixed, random) : choose(fixed, random)};
    unfinished_[trial] = asked.point;
    return asked;
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    auto found = unfinished_.extract(trial);
    if (!found) return;
    results_.push_back({value_or_worst(values), std::move(found.mapped())});
    if (results_.size() <= history_) return;
    // Drops the oldest of the worse half, which says least.
    std::vector<double> sorted;
    for (const auto& result : results_) sorted.push_back(result.value);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    const double middle = sorted[sorted.size() / 2];
    results_.erase(std::find_if(results_.begin(), results_.end(), [&](auto& it) { return it.value >= middle; }));
  }

 private:
  struct Result {
    double value;
    Point point;
  };
  struct Candidate {
    double score;
    Point point;
  };

  /// Values of mean 0 and deviation 1. What failed has the worst value of the others.
  Eigen::VectorXd standard_values() const {
    double worst = -std::numeric_limits<double>::infinity();
    for (const auto& result : results_) {
      if (std::isfinite(result.value)) worst = std::max(worst, result.value);
    }
    if (!std::isfinite(worst)) worst = 0;
    Eigen::VectorXd values(static_cast<Eigen::Index>(results_.size()));
    for (std::size_t n = 0; n < results_.size(); ++n) {
      values[static_cast<Eigen::Index>(n)] = std::isfinite(results_[n].value) ? results_[n].value : worst;
    }
    values.array() -= values.mean();
    const double deviation = std::sqrt(values.squaredNorm() / static_cast<double>(values.size()));
    return deviation > 0 ? Eigen::VectorXd(values / deviation) : values;
  }

  Point choose(const Point& fixed, RandomNumbers& random) {
    const Eigen::VectorXd values = standard_values();
    Eigen::MatrixXd places(static_cast<Eigen::Index>(space_.dimensions().size()), values.size());
    for (std::size_t n = 0; n < results_.size(); ++n) {
      places.col(static_cast<Eigen::Index>(n)) = process_.place_of(results_[n].point);
    }
    process_.fit(places, values);
    std::size_t pretended = 0;
    for (auto it = unfinished_.rbegin(); it != unfinished_.rend() && pretended < kMostPretended; ++it, ++pretended) {
      process_.pretend(process_.place_of(it->second));
    }
    Eigen::Index best = 0;
    const double lowest = values.minCoeff(&best);
    return improved(candidates(fixed, results_[static_cast<std::size_t>(best)].point, lowest, random), fixed, lowest,
                    random);
  }

  Candidate scored(Point point, double lowest) const {
    const auto [mean, deviation] = process_.predict(process_.place_of(point));
    return {log_improvement(mean, deviation, lowest), std::move(point)};
  }

  /// A point near `point`; every dimension changes with a probability, one at least.
  Point near(const Point& point, const Point& fixed, double sigma, RandomNumbers& random) const {
    const auto count = static_cast<std::int64_t>(point.size());
    const std::int64_t certain = random.below(count);
    const double share = random.uniform() < 0.5 ? 1 : 2.0 / static_cast<double>(count);
    return filled(space_, fixed, [&](int d) {
      const auto n = static_cast<std::size_t>(d);
      const Domain& domain = space_.dimensions()[n].domain;
      const double value = point[n];
      if (std::isnan(value)) return from_unit(domain, random.uniform());
      if (domain.kind == Domain::Kind::category) {
        return random.uniform() < 0.1 ? from_unit(domain, random.uniform()) : value;
      }
      if (d != certain && random.uniform() >= share) return value;
      const double step = std::max(sigma, is_discrete(domain) ? 0.5 * step_of(domain, value) : 0) * random.normal();
      return from_unit(domain, std::clamp(to_unit(domain, value) + step, 0.0, 1.0));
    });
  }

  static double step_of(const Domain& domain, double value) {
    const auto [low, high] = unit_interval(domain, value);
    return high - low;
  }

  /// The best of many points: anywhere, and around the best known one.
  std::vector<Candidate> candidates(const Point& fixed, const Point& best, double lowest, RandomNumbers& random) const {
    constexpr int kAnywhere = 512, kNear = 256, kKept = 5;
    std::vector<Candidate> all;
    for (int n = 0; n < kAnywhere; ++n) all.push_back(scored(random_point(space_, fixed, random), lowest));
    for (int n = 0; n < kNear; ++n) {
      const double sigma = std::pow(10, -1 - 2 * random.uniform());
      all.push_back(scored(near(best, fixed, sigma, random), lowest));
    }
    std::stable_sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.score > b.score; });
    all.resize(kKept);
    return all;
  }

  /// Climbs from each start by random steps, whose size follows their success, and returns the highest point.
  Point improved(std::vector<Candidate> starts, const Point& fixed, double lowest, RandomNumbers& random) const {
    constexpr int kClimb = 150;
    Candidate* highest = &starts[0];
    for (Candidate& it : starts) {
      double sigma = 0.1;
      for (int step = 0; step < kClimb && sigma > 1e-5; ++step) {
        Candidate next = scored(near(it.point, fixed, sigma, random), lowest);
        const bool is_higher = next.score > it.score;
        if (is_higher) it = std::move(next);
        sigma *= is_higher ? 1.5 : 0.9;
      }
      if (it.score > highest->score) highest = &it;
    }
    return highest->point;
  }

  static constexpr std::size_t kMostPretended = 32;  // each costs as much as a fit's step

  Space space_;
  std::uint64_t seed_;
  std::int64_t startup_;
  std::size_t history_;
  GaussianProcess process_;
  std::map<TrialNumber, Point> unfinished_;
  std::vector<Result> results_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_gp(SearcherOptions& options, const SearcherSetup& setup) {
  const std::int64_t startup = options.integer("n_startup", 10, 1);
  const auto history = static_cast<std::size_t>(options.integer("history", 200, 10, 5000));
  return std::make_unique<GpSearcher>(setup, startup, history);
}

}  // namespace lockstep::tune
