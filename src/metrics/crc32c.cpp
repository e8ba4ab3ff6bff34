#include "metrics/crc32c.h"

#include <array>
#include <cstring>

namespace lockstep::metrics {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

/// tables[k][b] is the effect of byte b followed by k zero bytes, so that eight bytes are one step.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c_portable(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint32_t low =
        crc ^ (at[0] | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24);
    crc = kTables[7][low & 0xFF] ^ kTables[6][low >> 8 & 0xFF] ^ kTables[5][low >> 16 & 0xFF] ^ kTables[4][low >> 24] ^
          kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^ kTables[0][at[7]];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)

bool has_crc32c_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_instruction(std::string_view bytes) {
  std::uint64_t crc = 0xFFFFFFFF;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(*at));
  return ~narrow;
}

#else

bool has_crc32c_instruction() { return false; }
std::uint32_t crc32c_instruction(std::string_view bytes) { return crc32c_portable(bytes); }

#endif

std::uint32_t crc32c(std::string_view bytes) {
  return has_crc32c_instruction() ? crc32c_instruction(bytes) : crc32c_portable(bytes);
}

}  // namespace lockstep::metrics
