#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tune/domain.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

struct Individual {
  Point point;
  std::vector<double> values;
  int front = 0;        ///< 0: nothing dominates it
  double crowding = 0;  ///< how far its neighbours in the front are
};

bool dominates(const Individual& a, const Individual& b) {
  bool is_better = false;
  for (std::size_t n = 0; n < a.values.size(); ++n) {
    if (a.values[n] > b.values[n]) return false;
    is_better = is_better || a.values[n] < b.values[n];
  }
  return is_better;
}

void set_crowding(std::vector<Individual*>& front) {
  const std::size_t last = front.size() - 1;
  for (Individual* it : front) it->crowding = 0;
  for (std::size_t objective = 0; objective < front[0]->values.size(); ++objective) {
    const auto value = [&](std::size_t n) { return front[n]->values[objective]; };
    std::stable_sort(front.begin(), front.end(),
                     [&](auto* a, auto* b) { return a->values[objective] < b->values[objective]; });
    const double range = value(last) - value(0);
    front[0]->crowding = front[last]->crowding = std::numeric_limits<double>::infinity();
    if (!(range > 0) || !std::isfinite(range)) continue;
    for (std::size_t n = 1; n < last; ++n) front[n]->crowding += (value(n + 1) - value(n - 1)) / range;
  }
}

/// Sets the fronts and the crowding of all.
void rank(std::vector<Individual>& all) {
  std::vector<Individual*> left;
  for (auto& it : all) left.push_back(&it);
  for (int front = 0; !left.empty(); ++front) {
    std::vector<Individual*> best, rest;
    for (Individual* it : left) {
      const bool is_dominated =
          std::any_of(left.begin(), left.end(), [&](auto* other) { return dominates(*other, *it); });
      (is_dominated ? rest : best).push_back(it);
    }
    for (Individual* it : best) it->front = front;
    set_crowding(best);
    left = std::move(rest);
  }
}

bool is_fitter(const Individual& a, const Individual& b) {
  return a.front != b.front ? a.front < b.front : a.crowding > b.crowding;
}

/// NSGA-II (Deb et al., 2002): a population that comes nearer to the Pareto front. A generation ends when as many
/// trials as the population have ended.
class Nsga2Searcher : public PointSearcher {
 public:
  Nsga2Searcher(const SearcherSetup& setup, std::size_t population, double crossover)
      : space_(setup.space),
        seed_(setup.seed),
        objectives_(static_cast<std::size_t>(setup.objectives)),
        population_(population),
        crossover_(crossover) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    Asked asked{Asked::Kind::point, parents_.empty() ? random_point(space_, fixed, random) : child(fixed, random)};
    unfinished_[trial] = asked.point;
    return asked;
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    auto found = unfinished_.extract(trial);
    if (!found) return;
    Individual it{std::move(found.mapped()), values, 0, 0};
    it.values.resize(objectives_, std::numeric_limits<double>::infinity());
    for (double& value : it.values) {
      if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    }
    children_.push_back(std::move(it));
    if (children_.size() < population_) return;
    std::move(children_.begin(), children_.end(), std::back_inserter(parents_));
    children_.clear();
    rank(parents_);
    std::stable_sort(parents_.begin(), parents_.end(), is_fitter);
    parents_.resize(std::min(parents_.size(), population_));
  }

 private:
  const Individual& tournament(RandomNumbers& random) const {
    const auto& a = parents_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(parents_.size())))];
    const auto& b = parents_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(parents_.size())))];
    return is_fitter(b, a) ? b : a;
  }

  Point child(const Point& fixed, RandomNumbers& random) const {
    const Individual &first = tournament(random), &second = tournament(random);
    const bool crosses = random.uniform() < crossover_;
    const double mutation = 1 / static_cast<double>(std::max<std::size_t>(space_.dimensions().size(), 1));
    return filled(space_, fixed, [&](int d) {
      const auto n = static_cast<std::size_t>(d);
      const Domain& domain = space_.dimensions()[n].domain;
      const double a = first.point[n], b = second.point[n];
      const bool has_both = !std::isnan(a) && !std::isnan(b);
      const double inherited = std::isnan(a) || (crosses && has_both && random.uniform() < 0.5) ? b : a;
      if (std::isnan(inherited)) return from_unit(domain, random.uniform());
      if (random.uniform() < mutation) return mutated(domain, inherited, random);
      if (!crosses || !has_both || domain.kind == Domain::Kind::category) return inherited;
      return blended(domain, inherited, inherited == a ? b : a, random);
    });
  }

  /// A value near `value`, as far from it as a part of the distance to `other` (simulated binary crossover).
  static double blended(const Domain& domain, double value, double other, RandomNumbers& random) {
    constexpr double kSharpness = 20;
    const double u = random.uniform();
    const double spread =
        u < 0.5 ? std::pow(2 * u, 1 / (kSharpness + 1)) : std::pow(0.5 / (1 - u), 1 / (kSharpness + 1));
    const double a = to_unit(domain, value), b = to_unit(domain, other);
    return from_unit(domain, std::clamp((a + b) / 2 + spread * (a - b) / 2, 0.0, 1.0));
  }

  /// Any value, or one near by.
  static double mutated(const Domain& domain, double value, RandomNumbers& random) {
    if (domain.kind == Domain::Kind::category || random.uniform() < 0.5) return from_unit(domain, random.uniform());
    return from_unit(domain, std::clamp(to_unit(domain, value) + 0.1 * random.normal(), 0.0, 1.0));
  }

  Space space_;
  std::uint64_t seed_;
  std::size_t objectives_, population_;
  double crossover_;
  std::unordered_map<TrialNumber, Point> unfinished_;
  std::vector<Individual> parents_, children_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_nsga2(SearcherOptions& options, const SearcherSetup& setup) {
  // A front of several metrics needs many individuals; one metric is better served by more generations.
  const int usual = setup.objectives > 1 ? 50 : 20;
  const auto population = static_cast<std::size_t>(options.integer("population", usual, 2, 100'000));
  return std::make_unique<Nsga2Searcher>(setup, population, options.number("crossover", 0.9, 0, 1));
}

}  // namespace lockstep::tune
