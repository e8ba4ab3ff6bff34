#include "tune/domain.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tune {
namespace {

/// The range of a real or integer domain on its scale, half a step wider on each side if it is discrete.
std::pair<double, double> scaled_range(const Domain& domain) {
  const double half = domain.quantum / 2;
  // In the logarithm, the first interval of quantum q from 0 would be infinite; values are above 0, so half of the
  // smallest value is the least.
  if (domain.log) return {std::log(std::max(domain.lower - half, domain.lower / 2)), std::log(domain.upper + half)};
  return {domain.lower - half, domain.upper + half};
}

double scaled_to_unit(const Domain& domain, double value) {
  if (domain.kind == Domain::Kind::normal) return normal_cdf((value - domain.mean) / domain.sd);
  const auto [lower, upper] = scaled_range(domain);
  if (!(upper > lower)) return 0.5;
  const double scaled = domain.log ? std::log(std::max(value, std::exp(lower))) : value;
  return std::clamp((scaled - lower) / (upper - lower), 0.0, 1.0);
}

double rounded(const Domain& domain, double value) {
  if (domain.quantum > 0) value = std::round(value / domain.quantum) * domain.quantum + 0.0;  // never -0.0
  return domain.kind == Domain::Kind::normal ? value : std::clamp(value, domain.lower, domain.upper);
}

}  // namespace

bool is_discrete(const Domain& domain) { return domain.kind == Domain::Kind::category || domain.quantum > 0; }

std::int64_t count_values(const Domain& domain) {
  if (domain.kind == Domain::Kind::category) return domain.choices;
  if (domain.kind == Domain::Kind::normal) return 0;
  if (domain.lower == domain.upper) return 1;
  if (domain.quantum <= 0) return 0;
  return static_cast<std::int64_t>(std::llround((domain.upper - domain.lower) / domain.quantum)) + 1;
}

double to_unit(const Domain& domain, double value) {
  if (!is_discrete(domain)) return scaled_to_unit(domain, value);
  const auto [lower, upper] = unit_interval(domain, value);
  return (lower + upper) / 2;
}

std::pair<double, double> unit_interval(const Domain& domain, double value) {
  if (domain.kind == Domain::Kind::category) return {value / domain.choices, (value + 1) / domain.choices};
  const double half = domain.quantum / 2;
  return {scaled_to_unit(domain, value - half), scaled_to_unit(domain, value + half)};
}

double from_unit(const Domain& domain, double unit) {
  if (domain.kind == Domain::Kind::category) {
    return std::clamp(std::floor(unit * domain.choices), 0.0, domain.choices - 1.0);
  }
  if (domain.kind == Domain::Kind::normal) {
    constexpr double kTail = 1e-12;  // 7 standard deviations; at 0 and 1 values would be infinite
    return rounded(domain, domain.mean + domain.sd * normal_quantile(std::clamp(unit, kTail, 1 - kTail)));
  }
  const auto [lower, upper] = scaled_range(domain);
  const double scaled = lower + unit * (upper - lower);
  return rounded(domain, domain.log ? std::exp(scaled) : scaled);
}

bool contains(const Domain& domain, double value) {
  if (!std::isfinite(value)) return false;
  if (domain.kind == Domain::Kind::category) {
    return value >= 0 && value < domain.choices && value == std::floor(value);
  }
  if (domain.kind == Domain::Kind::integer && value != std::floor(value)) return false;
  if (domain.quantum > 0 && std::abs(rounded(domain, value) - value) > 1e-9 * std::max(1.0, std::abs(value))) {
    return false;
  }
  return domain.kind == Domain::Kind::normal || (value >= domain.lower && value <= domain.upper);
}

Point random_point(const Space& space, const Point& fixed, RandomNumbers& random) {
  return filled(space, fixed, [&](int d) { return from_unit(space.dimensions()[d].domain, random.uniform()); });
}

}  // namespace lockstep::tune
