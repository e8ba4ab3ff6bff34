#include <lockstep/permutation.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::detail {
namespace {

/// Smaller networks have too few permutations to choose from.
constexpr int kLeastBits = 8;

std::uint64_t joined(std::uint64_t key, std::uint64_t number) {
  return scrambled(key + number * 0xd1342543de82ef95 + 1);
}

}  // namespace

std::uint64_t scrambled(std::uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9;
  value ^= value >> 27;
  value *= 0x94d049bb133111eb;
  return value ^ value >> 31;
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch) {
  return joined(scrambled(seed + 0x9e3779b97f4a7c15), epoch);
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch, std::uint64_t part) {
  return joined(mixed(seed, epoch), part);
}

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size) {
  bits_ = std::max(kLeastBits, size > 1 ? static_cast<int>(std::bit_width(size - 1)) : 1);
  for (auto& round : keys_) round = key = scrambled(key + 0x9e3779b97f4a7c15);
}

std::uint64_t Permutation::encrypted(std::uint64_t value) const {
  // With an odd number of bits the halves differ by one bit, and swap their sizes in each round.
  int left_bits = bits_ / 2, right_bits = bits_ - left_bits;
  std::uint64_t left = value >> right_bits, right = value & ((std::uint64_t{1} << right_bits) - 1);
  for (const std::uint64_t key : keys_) {
    const std::uint64_t next = left ^ (scrambled(right + key) & ((std::uint64_t{1} << left_bits) - 1));
    left = std::exchange(right, next);
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

std::uint64_t Permutation::operator()(std::uint64_t place) const {
  do place = encrypted(place);
  while (place >= size_);
  return place;
}

}  // namespace lockstep::detail
