#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::tune {

/// The points of a Sobol sequence in [0, 1)^d: the first 2^k are evenly spread for every k. The seed scrambles them (a
/// random triangular matrix and shift per dimension), which keeps that. At most 1,000 dimensions.
class SobolSequence {
 public:
  static constexpr int kBits = 32;
  static constexpr int kMostDimensions = 1000;

  SobolSequence(int dimensions, std::uint64_t seed);
  double at(std::uint64_t index, int dimension) const;

 private:
  struct Directions {
    std::array<std::uint32_t, kBits> columns;  ///< what bit n of the index adds
    std::uint32_t shift;
  };
  std::vector<Directions> directions_;
};

}  // namespace lockstep::tune
