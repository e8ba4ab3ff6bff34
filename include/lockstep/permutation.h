#pragma once

#include <cstdint>
#include <span>

namespace lockstep::detail {

/// 64 bits, each of which depends on every bit of `value`. Different values have different results.
std::uint64_t scrambled(std::uint64_t value);

/// A key made from all numbers; seed 1 in epoch 0 differs from seed 0 in epoch 1.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch);
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch, std::uint64_t part);

/// A permutation of 0 ... size - 1, computed one place at a time in constant memory. It is the same for the same size
/// and key on every machine. A Feistel network; a result that is too large is permuted again. `size` is 1 or more.
/// Any thread may call.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key);
  /// The number at `place`, which is below the size.
  std::uint64_t operator()(std::uint64_t place) const;
  /// Replaces each place by the number there. Several times as fast as one by one.
  void replace(std::span<std::int64_t> places) const;

 private:
  std::uint64_t encrypted(std::uint64_t value) const;
  void replace_by_tables(std::span<std::int64_t> places) const;
  std::uint64_t size_;
  int bits_;
  std::uint64_t keys_[8];
};

}  // namespace lockstep::detail
