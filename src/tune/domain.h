#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "tune/random_numbers.h"
#include "tune/space.h"

namespace lockstep::tune {

/// A domain as the interval [0, 1], in which its values are uniform: searchers work there. Discrete values have an
/// interval each; those of a category have equal ones.

/// The place of a value: the middle of its interval if the domain is discrete.
double to_unit(const Domain& domain, double value);
/// The value at a place in [0, 1].
double from_unit(const Domain& domain, double unit);
/// The interval of a value; empty for one of a continuous domain.
std::pair<double, double> unit_interval(const Domain& domain, double value);

bool is_discrete(const Domain& domain);
/// The number of values; 0 if there are infinitely many.
std::int64_t count_values(const Domain& domain);
/// Whether the value belongs to the domain.
bool contains(const Domain& domain, double value);

/// Fills in what `fixed` leaves open: `choose(dimension)` gives the value of an active dimension, called in order.
/// Dimensions that are not active become NaN. An empty `fixed` leaves everything open.
template <class Choose>
Point filled(const Space& space, const Point& fixed, Choose&& choose) {
  const auto& dimensions = space.dimensions();
  Point point(dimensions.size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    if (!space.is_active(point, static_cast<int>(d))) continue;
    const bool is_open = d >= fixed.size() || fixed[d] != fixed[d];
    point[d] = is_open ? choose(static_cast<int>(d)) : fixed[d];
  }
  return point;
}

/// A random point.
Point random_point(const Space& space, const Point& fixed, RandomNumbers& random);

}  // namespace lockstep::tune
