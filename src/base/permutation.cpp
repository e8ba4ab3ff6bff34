#include <lockstep/permutation.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace {

/// Smaller networks have too few permutations to choose from.
constexpr int kLeastBits = 8;
/// Of half a number, if the network is written out as tables, which then fit into the cache.
constexpr int kTableBits = 12;

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

void Permutation::replace(std::span<std::int64_t> places) const {
  const int half = bits_ - bits_ / 2;
  if (half <= kTableBits && places.size() >> half >= 2) return replace_by_tables(places);
  // One branch-free loop per round keeps the processor busy. Those that are too large wait for the next turn.
  constexpr std::size_t kChunk = 512;
  std::array<std::uint64_t, kChunk> left, right;
  std::array<std::uint16_t, kChunk> waiting;
  for (std::size_t begin = 0; begin < places.size(); begin += kChunk) {
    const auto chunk = places.subspan(begin, std::min(kChunk, places.size() - begin));
    std::size_t count = chunk.size();
    for (std::size_t n = 0; n < count; ++n) waiting[n] = static_cast<std::uint16_t>(n);
    while (count > 0) {
      int left_bits = bits_ / 2, right_bits = bits_ - left_bits;
      for (std::size_t n = 0; n < count; ++n) {
        const auto value = static_cast<std::uint64_t>(chunk[waiting[n]]);
        left[n] = value >> right_bits;
        right[n] = value & ((std::uint64_t{1} << right_bits) - 1);
      }
      for (const std::uint64_t key : keys_) {
        const std::uint64_t mask = (std::uint64_t{1} << left_bits) - 1;
        for (std::size_t n = 0; n < count; ++n)
          left[n] = std::exchange(right[n], left[n] ^ (scrambled(right[n] + key) & mask));
        std::swap(left_bits, right_bits);
      }
      std::size_t more = 0;
      for (std::size_t n = 0; n < count; ++n) {
        const std::uint64_t value = left[n] << right_bits | right[n];
        const std::uint16_t place = waiting[n];
        chunk[place] = static_cast<std::int64_t>(value);
        waiting[more] = place;
        more += value >= size_;
      }
      count = more;
    }
  }
}

/// A round depends only on one half of the bits, so all that it can give fits into a small table.
void Permutation::replace_by_tables(std::span<std::int64_t> places) const {
  const int left_bits = bits_ / 2, right_bits = bits_ - left_bits;
  std::vector<std::uint16_t> tables(std::size(keys_) << right_bits);
  for (std::size_t round = 0; round < std::size(keys_); ++round) {
    const int from = round % 2 == 0 ? right_bits : left_bits, to = bits_ - from;
    for (std::uint64_t half = 0; half < std::uint64_t{1} << from; ++half)
      tables[(round << right_bits) + half] =
          static_cast<std::uint16_t>(scrambled(half + keys_[round]) & ((std::uint64_t{1} << to) - 1));
  }
  // Those that are too large wait for the next turn: a loop for each of them would be hard to foresee.
  std::vector<std::uint32_t> waiting(places.size());
  std::iota(waiting.begin(), waiting.end(), 0);
  while (!waiting.empty()) {
    std::size_t more = 0;
    for (const std::uint32_t at : waiting) {
      const auto value = static_cast<std::uint64_t>(places[at]);
      std::uint64_t left = value >> right_bits, right = value & ((std::uint64_t{1} << right_bits) - 1);
      const std::uint16_t* table = tables.data();
      for (std::size_t round = 0; round < std::size(keys_); round += 2, table += std::size_t{2} << right_bits) {
        left ^= table[right];
        right ^= table[(std::size_t{1} << right_bits) + left];
      }
      const std::uint64_t next = left << right_bits | right;
      places[at] = static_cast<std::int64_t>(next);
      waiting[more] = at;
      more += next >= size_;
    }
    waiting.resize(more);
  }
}

}  // namespace lockstep::detail
