#include "store/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::store {
namespace {

std::string hex(XXH128_hash_t hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(new State) { XXH3_128bits_reset(&state_->xxh3); }

void Hasher::Free::operator()(State* state) const { delete state; }

void Hasher::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string Hasher::digest() const { return hex(XXH3_128bits_digest(&state_->xxh3)); }

std::string hash_of(std::span<const std::byte> bytes) { return hex(XXH3_128bits(bytes.data(), bytes.size())); }

}  // namespace lockstep::store
