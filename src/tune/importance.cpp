#include "tune/importance.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "tune/random_numbers.h"
#include "tune/tree_grower.h"

namespace lockstep::tune {
namespace {

constexpr double kFarOut = 10;  ///< interquartile ranges
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double clamped_place(double place) { return std::isnan(place) ? kUnknown : std::clamp(place, 0.0, 1.0); }

/// Moves values that are far from all others nearer.
void pull_in(std::vector<double>& values) {
  if (values.size() < 4) return;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double lower = sorted[sorted.size() / 4], upper = sorted[sorted.size() * 3 / 4];
  const double reach = kFarOut * (upper - lower);
  if (!(reach > 0) || !std::isfinite(reach)) return;
  for (double& value : values) value = std::clamp(value, lower - reach, upper + reach);
}

}  // namespace

double place_in(const Domain& domain, double value) {
  if (std::isnan(value)) return kUnknown;
  switch (domain.kind) {
    case Domain::Kind::category:
      return clamped_place((value + 0.5) / std::max(1, domain.choices));
    case Domain::Kind::normal:
      return clamped_place(normal_cdf((value - domain.mean) / domain.sd));
    case Domain::Kind::integer:
      if (!domain.log) return clamped_place((value - domain.lower + 0.5) / (domain.upper - domain.lower + 1));
      break;
    case Domain::Kind::real:
      break;
  }
  if (!(domain.upper > domain.lower)) return 0.5;
  if (!domain.log) return clamped_place((value - domain.lower) / (domain.upper - domain.lower));
  if (value <= 0) return 0;
  return clamped_place(std::log(value / domain.lower) / std::log(domain.upper / domain.lower));
}

double value_at(const Domain& domain, double place) {
  place = std::clamp(place, 0.0, 1.0);
  switch (domain.kind) {
    case Domain::Kind::category:
      return std::min(std::floor(place * domain.choices), domain.choices - 1.0);
    case Domain::Kind::normal:
      return domain.mean + domain.sd * normal_quantile(std::clamp(place, 1e-9, 1 - 1e-9));
    case Domain::Kind::integer:
      if (!domain.log) return domain.lower - 0.5 + place * (domain.upper - domain.lower + 1);
      break;
    case Domain::Kind::real:
      break;
  }
  if (domain.log) return domain.lower * std::pow(domain.upper / domain.lower, place);
  return domain.lower + place * (domain.upper - domain.lower);
}

Forest Forest::fit(const std::vector<Dimension>& dimensions, const std::vector<Point>& points,
                   const std::vector<double>& values, const ForestOptions& options) {
  if (points.size() != values.size())
    throw ConfigError("[tune.importance] there are " + std::to_string(points.size()) + " points, but " +
                      std::to_string(values.size()) + " values; give one value per point");
  std::vector<Point> places;
  std::vector<double> finite;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].size() != dimensions.size())
      throw ConfigError("[tune.importance] point " + std::to_string(i) + " has " + std::to_string(points[i].size()) +
                        " values; the space has " + std::to_string(dimensions.size()) + " dimensions");
    if (!std::isfinite(values[i])) continue;
    Point place(dimensions.size());
    for (std::size_t d = 0; d < place.size(); ++d) {
      const Domain& domain = dimensions[d].domain;
      const bool is_choice = domain.kind == Domain::Kind::category;
      const bool is_known = !is_choice || (points[i][d] >= 0 && points[i][d] < domain.choices);
      place[d] = !is_known ? kUnknown : is_choice ? points[i][d] : place_in(domain, points[i][d]);
    }
    places.push_back(std::move(place));
    finite.push_back(values[i]);
  }
  pull_in(finite);
  Forest forest;
  forest.dimensions_ = dimensions;
  if (places.empty()) return forest;
  for (int i = 0; i < options.trees; ++i)
    forest.trees_.push_back(TreeGrower(dimensions, places, finite, options, static_cast<std::uint64_t>(i)).grow());
  return forest;
}

double Forest::overlap(const Side& a, const Side& b) {
  if (a.choices.empty()) return std::max(0.0, std::min(a.high, b.high) - std::max(a.low, b.low));
  std::size_t both = 0;
  for (std::size_t i = 0; i < a.choices.size(); ++i) both += a.choices[i] && b.choices[i] ? 1 : 0;
  return static_cast<double>(both) / static_cast<double>(a.choices.size());
}

std::vector<Importance> Forest::importance() const {
  // Let f be a tree, f_S its average over all dimensions outside of S. Then the variance of f_S is a sum over pairs of
  // boxes: their values, times the overlaps in S, times the shares outside of S. S = {d} gives `alone`; S = all but d
  // gives what does not depend on d, and the rest of the variance is `total`.
  const std::size_t count = dimensions_.size();
  std::vector<Importance> sums(count);
  int counted = 0;
  std::vector<double> only(count), without(count), overlaps(count), products(count), before(count + 1);
  for (const Tree& tree : trees_) {
    double mean = 0, square = 0;
    for (const Box& box : tree) mean += box.weight * box.value;
    for (const Box& box : tree) square += box.weight * (box.value - mean) * (box.value - mean);
    if (!(square > 0)) continue;
    std::fill(only.begin(), only.end(), 0.0);
    std::fill(without.begin(), without.end(), 0.0);
    for (std::size_t i = 0; i < tree.size(); ++i) {
      for (std::size_t j = i; j < tree.size(); ++j) {
        const Box &a = tree[i], &b = tree[j];
        const double values = (a.value - mean) * (b.value - mean) * (i == j ? 1 : 2);
        before[0] = 1;
        for (std::size_t d = 0; d < count; ++d) {
          overlaps[d] = overlap(a.sides[d], b.sides[d]);
          products[d] = a.sides[d].share * b.sides[d].share;
          before[d + 1] = before[d] * overlaps[d];
          if (products[d] > 0) only[d] += values * a.weight * b.weight / products[d] * overlaps[d];
        }
        double after = 1;
        for (std::size_t d = count; d-- > 0; after *= overlaps[d])
          without[d] += values * before[d] * after * products[d];
      }
    }
    ++counted;
    for (std::size_t d = 0; d < count; ++d) {
      const double alone = std::clamp(only[d] / square, 0.0, 1.0);
      sums[d].alone += alone;
      sums[d].total += std::clamp(1 - without[d] / square, alone, 1.0);
    }
  }
  for (Importance& sum : sums) {
    sum.alone /= std::max(1, counted);
    sum.total /= std::max(1, counted);
  }
  return sums;
}

double Forest::marginal(const Point& point) const {
  if (trees_.empty()) return kUnknown;
  double sum = 0;
  for (const Tree& tree : trees_) {
    for (const Box& box : tree) {
      double weight = box.weight;
      for (std::size_t d = 0; d < dimensions_.size() && weight > 0; ++d) {
        if (std::isnan(point[d])) continue;
        const Side& side = box.sides[d];
        const double place = place_in(dimensions_[d].domain, point[d]);
        const bool inside = side.choices.empty()
                                ? place >= side.low && (place < side.high || side.high >= 1)
                                : point[d] >= 0 && point[d] < static_cast<double>(side.choices.size()) &&
                                      side.choices[static_cast<std::size_t>(point[d])];
        weight = inside ? weight / side.share : 0;
      }
      sum += weight * box.value;
    }
  }
  return sum / static_cast<double>(trees_.size());
}

}  // namespace lockstep::tune
