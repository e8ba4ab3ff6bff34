#include "tune/sobol.h"

#include <lockstep/permutation.h>

#include <bit>
#include <limits>

#include "tune/random_numbers.h"

namespace lockstep::tune {
namespace {

using Columns = std::array<std::uint32_t, SobolSequence::kBits>;

/// x^exponent modulo a polynomial over the field of two elements; bit n is the coefficient of x^n.
std::uint32_t power_of_x(std::uint32_t exponent, std::uint32_t polynomial, int degree) {
  const auto multiplied = [&](std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (; b; b >>= 1) {
      if (b & 1) product ^= a;
      a <<= 1;
      if (a >> degree & 1) a ^= polynomial;
    }
    return product;
  };
  std::uint32_t result = 1, base = degree == 1 ? 2 ^ polynomial : 2;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result = multiplied(result, base);
    base = multiplied(base, base);
  }
  return result;
}

/// Whether x runs through all polynomials of lower degree.
bool is_primitive(std::uint32_t polynomial, int degree) {
  const std::uint32_t order = (1U << degree) - 1;
  if (power_of_x(order, polynomial, degree) != 1) return false;
  std::uint32_t rest = order;
  for (std::uint32_t prime = 2; prime <= rest; ++prime) {
    if (rest % prime != 0) continue;
    if (order / prime > 0 && order != prime && power_of_x(order / prime, polynomial, degree) == 1) return false;
    while (rest % prime == 0) rest /= prime;
  }
  return true;
}

/// Direction numbers by Sobol's recurrence, from first numbers that a key chooses.
Columns directions_of(std::uint32_t polynomial, int degree, std::uint64_t key) {
  std::array<std::uint32_t, SobolSequence::kBits> numbers{};
  for (int n = 0; n < SobolSequence::kBits; ++n) {
    if (n < degree) {
      const std::uint64_t bits = detail::mixed(key, static_cast<std::uint64_t>(n));
      numbers[n] = (static_cast<std::uint32_t>(bits) & ((1U << (n + 1)) - 1)) | 1;
      continue;
    }
    numbers[n] = numbers[n - degree] ^ numbers[n - degree] << degree;
    for (int k = 1; k < degree; ++k) {
      if (polynomial >> (degree - k) & 1) numbers[n] ^= numbers[n - k] << k;
    }
  }
  for (int n = 0; n < SobolSequence::kBits; ++n) numbers[n] <<= SobolSequence::kBits - 1 - n;
  return numbers;
}

/// How often two dimensions together leave one of the equal rectangles of the plane empty, over the first 2^m points,
/// m up to 8 (rows of the two matrices depend on each other).
int count_gaps(const Columns& a, const Columns& b) {
  constexpr int kMost = 8;
  const auto row_of = [](const Columns& columns, int row, int m) {
    std::uint32_t bits = 0;
    for (int n = 0; n < m; ++n) bits |= (columns[n] >> (SobolSequence::kBits - 1 - row) & 1) << n;
    return bits;
  };
  int gaps = 0;
  for (int m = 2; m <= kMost; ++m) {
    for (int of_a = 1; of_a < m; ++of_a) {
      std::array<std::uint32_t, kMost> reduced{};  // by leading bit
      for (int row = 0; row < m; ++row) {
        std::uint32_t bits = row < of_a ? row_of(a, row, m) : row_of(b, row - of_a, m);
        while (bits && reduced[std::bit_width(bits) - 1]) bits ^= reduced[std::bit_width(bits) - 1];
        if (!bits) {
          ++gaps;
          break;
        }
        reduced[std::bit_width(bits) - 1] = bits;
      }
    }
  }
  return gaps;
}

/// The direction numbers of all dimensions. First numbers are those of some tries that fit best to the dimensions
/// before.
std::vector<Columns> all_directions(int dimensions) {
  constexpr int kTries = 24;
  constexpr std::size_t kCompared = 24;
  std::vector<Columns> all(1);
  for (int n = 0; n < SobolSequence::kBits; ++n) all[0][n] = 1U << (SobolSequence::kBits - 1 - n);
  for (int degree = 1; static_cast<int>(all.size()) < dimensions; ++degree) {
    for (std::uint32_t middle = 0; middle < 1U << (degree - 1); ++middle) {
      const std::uint32_t polynomial = 1U << degree | middle << 1 | 1;
      if (static_cast<int>(all.size()) >= dimensions || !is_primitive(polynomial, degree)) continue;
      Columns best{};
      int fewest = std::numeric_limits<int>::max();
      for (int attempt = 0; attempt < kTries && fewest > 0; ++attempt) {
        const Columns columns =
            directions_of(polynomial, degree, detail::mixed(polynomial, static_cast<std::uint64_t>(attempt)));
        int gaps = 0;
        for (std::size_t n = all.size() - std::min(all.size(), kCompared); n < all.size(); ++n) {
          gaps += count_gaps(all[n], columns);
        }
        if (gaps < fewest) {
          fewest = gaps;
          best = columns;
        }
      }
      all.push_back(best);
    }
  }
  all.resize(static_cast<std::size_t>(dimensions));
  return all;
}

}  // namespace

SobolSequence::SobolSequence(int dimensions, std::uint64_t seed) {
  for (const Columns& plain : all_directions(std::max(dimensions, 1))) {
    RandomNumbers random(seed, directions_.size());
    // Row n of the matrix: a digit of the result is the sum of the digit itself and some of the higher ones.
    Columns rows;
    for (int n = 0; n < kBits; ++n) {
      const std::uint32_t higher = n == 0 ? 0 : static_cast<std::uint32_t>(random.bits()) << (kBits - n);
      rows[n] = higher | 1U << (kBits - 1 - n);
    }
    Directions scrambled{};
    for (int bit = 0; bit < kBits; ++bit) {
      for (int n = 0; n < kBits; ++n) {
        const auto digit = static_cast<std::uint32_t>(std::popcount(rows[n] & plain[bit]) & 1);
        scrambled.columns[bit] |= digit << (kBits - 1 - n);
      }
    }
    scrambled.shift = static_cast<std::uint32_t>(random.bits());
    directions_.push_back(scrambled);
  }
}

double SobolSequence::at(std::uint64_t index, int dimension) const {
  const Directions& it = directions_[static_cast<std::size_t>(dimension)];
  std::uint32_t bits = it.shift;
  for (int n = 0; n < kBits; ++n) {
    if (index >> n & 1) bits ^= it.columns[n];
  }
  return (static_cast<double>(bits) + 0.5) * 0x1p-32;
}

}  // namespace lockstep::tune
