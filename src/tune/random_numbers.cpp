#include "tune/random_numbers.h"

#include <lockstep/permutation.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::tune {

RandomNumbers::RandomNumbers(std::uint64_t seed, std::uint64_t trial) : state_(detail::mixed(seed, trial)) {}

std::uint64_t RandomNumbers::bits() {
  state_ += 0x9e3779b97f4a7c15U;
  return detail::scrambled(state_);
}

double RandomNumbers::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

std::int64_t RandomNumbers::below(std::int64_t size) {
  return std::min(static_cast<std::int64_t>(uniform() * static_cast<double>(size)), size - 1);
}

double RandomNumbers::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

double normal_quantile(double p) {
  // A rational guess of Abramowitz and Stegun (26.2.23), exact to 5e-4, and three steps of Halley.
  const double tail = std::max(std::min(p, 1 - p), 1e-300);
  const double t = std::sqrt(-2 * std::log(tail));
  double z = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int step = 0; step < 3; ++step) {  // z > 0 is where the upper tail is `tail`
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    const double error = (normal_cdf(-z) - tail) / density;
    z += error / (1 - 0.5 * z * error);
  }
  return p < 0.5 ? -z : z;
}

}  // namespace lockstep::tune
