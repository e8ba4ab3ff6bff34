#pragma once

#include <cstdint>

namespace lockstep::tune {

/// A sequence of random numbers that depends on a seed and the number of a trial alone, and is the same on every
/// machine.
class RandomNumbers {
 public:
  RandomNumbers(std::uint64_t seed, std::uint64_t trial);
  std::uint64_t bits();
  /// In [0, 1).
  double uniform();
  /// 0 .. size - 1; `size` is 1 or more.
  std::int64_t below(std::int64_t size);
  /// With mean 0 and standard deviation 1.
  double normal();

 private:
  std::uint64_t state_;
};

/// The probability that a standard normal number is at most `z`.
double normal_cdf(double z);
/// Its inverse, for `p` in (0, 1).
double normal_quantile(double p);

}  // namespace lockstep::tune
