#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>

namespace lockstep {

/// Fails unless what `work(n)` costs grows with n rather than with its square: eight times the work may take at most 24
/// times the processor time of this thread, 64 would be the square. Other processes do not count, and the least of
/// several tries does.
template <class Work>
void expect_linear(std::size_t n, Work&& work) {
  const auto cost = [&](std::size_t size) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
      timespec begin{}, end{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
      work(size);
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
      least = std::min(least, static_cast<double>(end.tv_sec - begin.tv_sec) +
                                  static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9);
    }
    return least;
  };
  const double small = cost(n), large = cost(8 * n);
  EXPECT_LT(large, 24 * small) << small << " s for " << n << ", " << large << " s for " << 8 * n;
}

}  // namespace lockstep
