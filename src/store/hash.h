#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep::store {

/// XXH3-128 of bytes that arrive in pieces, as 32 hexadecimal digits (as `xxhsum -H2` prints it).
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  std::string digest() const;

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

/// The same for bytes in one piece.
std::string hash_of(std::span<const std::byte> bytes);

}  // namespace lockstep::store
