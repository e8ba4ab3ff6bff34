#include "metrics/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::metrics {
namespace {

/// The vectors of RFC 3720, section B.4, and the check value of the catalogue.
TEST(Crc32c, KnownValues) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  for (const auto crc : {crc32c, crc32c_portable}) {
    EXPECT_EQ(crc(""), 0U);
    EXPECT_EQ(crc("123456789"), 0xE3069283U);
    EXPECT_EQ(crc(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(crc(std::string(32, '\xFF')), 0x62A8AB43U);
    EXPECT_EQ(crc(rising), 0x46DD794EU);
    EXPECT_EQ(crc(falling), 0x113FDB5CU);
  }
}

TEST(Crc32c, InstructionAndTablesAgree) {
  if (!has_crc32c_instruction()) GTEST_SKIP() << "this processor has no such instruction";
  std::string bytes;
  for (unsigned i = 0; i < 300; ++i) {
    EXPECT_EQ(crc32c_instruction(bytes), crc32c_portable(bytes)) << bytes.size();
    bytes += static_cast<char>(i * 7919U >> 3);
  }
  // Also from an address that is not aligned.
  EXPECT_EQ(crc32c_instruction(std::string_view(bytes).substr(3)), crc32c_portable(std::string_view(bytes).substr(3)));
}

}  // namespace
}  // namespace lockstep::metrics
