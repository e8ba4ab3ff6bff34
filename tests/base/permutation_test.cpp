#include <gtest/gtest.h>
#include <lockstep/permutation.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace lockstep::detail {
namespace {

TEST(Permutation, HasEveryNumberOnce) {
  for (const std::uint64_t size : {1, 2, 3, 10, 255, 256, 257, 1000, 65537}) {
    const Permutation permutation(size, 7);
    std::vector<bool> seen(size);
    for (std::uint64_t place = 0; place < size; ++place) {
      const auto number = permutation(place);
      ASSERT_LT(number, size);
      ASSERT_FALSE(seen[number]) << size;
      seen[number] = true;
    }
  }
}

TEST(Permutation, IsTheSameForManyPlacesAtOnce) {
  for (const std::uint64_t size : {1, 2, 100, 257, 1000, 100'000, 3'000'000, 40'000'000})
    for (const std::uint64_t first : {std::uint64_t{0}, size / 2}) {
      const Permutation permutation(size, 3);
      std::vector<std::int64_t> places(std::min<std::uint64_t>(size - first, 50'000));
      std::iota(places.begin(), places.end(), static_cast<std::int64_t>(first));
      permutation.replace(places);
      for (std::uint64_t n = 0; n < places.size(); ++n)
        ASSERT_EQ(static_cast<std::uint64_t>(places[n]), permutation(first + n)) << size;
    }
}

TEST(Permutation, IsTheSameEverywhere) {
  const Permutation permutation(10, mixed(0, 0));
  std::vector<std::uint64_t> order;
  for (std::uint64_t place = 0; place < 10; ++place) order.push_back(permutation(place));
  EXPECT_EQ(order, (std::vector<std::uint64_t>{5, 6, 7, 0, 9, 1, 3, 2, 8, 4}));
}

// Every number is about equally often at every place: a chi-square statistic of 9 x 9 degrees of freedom, which exceeds
// 150 about once in 100000 tries of a fair shuffle.
TEST(Permutation, IsFair) {
  constexpr int kSize = 10, kTries = 20000;
  double counts[kSize][kSize] = {};
  for (int seed = 0; seed < kTries; ++seed) {
    const Permutation permutation(kSize, mixed(static_cast<std::uint64_t>(seed), 3));
    for (int place = 0; place < kSize; ++place) ++counts[place][permutation(static_cast<std::uint64_t>(place))];
  }
  double chi_square = 0;
  for (const auto& row : counts)
    for (const double count : row) chi_square += (count - kTries / 10.) * (count - kTries / 10.) / (kTries / 10.);
  EXPECT_LT(chi_square, 150);
}

TEST(Permutation, DiffersBySeedAndEpoch) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      const Permutation permutation(50, mixed(seed, epoch));
      std::vector<std::uint64_t> order;
      for (std::uint64_t place = 0; place < 50; ++place) order.push_back(permutation(place));
      EXPECT_TRUE(orders.insert(order).second) << seed << " " << epoch;
    }
}

}  // namespace
}  // namespace lockstep::detail
