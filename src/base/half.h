#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {

/// Converts the 16 bits of an IEEE half to a number.
inline double from_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent != 31 ? std::ldexp(mantissa + 1024, exponent - 25)
                      : mantissa == 0  ? std::numeric_limits<double>::infinity()
                                       : std::numeric_limits<double>::quiet_NaN();
  return (half & 0x8000) != 0 ? -size : size;
}

}  // namespace lockstep
