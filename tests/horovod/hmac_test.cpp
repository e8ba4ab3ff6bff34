#include "horovod/hmac.h"

#include <gtest/gtest.h>

namespace lockstep::horovod {
namespace {

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char each : bytes) text = text + kDigits[each >> 4] + kDigits[each & 15];
  return text;
}

TEST(Sha256, KnownTexts) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, EveryLengthAroundTheBlocks) {
  std::string digests;
  for (std::size_t size = 0; size < 300; ++size) digests += sha256(std::string(size, 'a'));
  EXPECT_EQ(hex(sha256(digests)), "80e953e3b006c4bab43fd5d792f8bd29c122f6cf1497318365fe66bf2d61398d");
}

/// The test cases of RFC 4231 whose digest is whole.
TEST(Hmac, KnownVectors) {
  std::string counted;
  for (char each = 1; each <= 25; ++each) counted += each;
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(hmac_sha256(counted, std::string(50, '\xcd'))),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "This is a test using a larger than block-size key and a larger than block-size data. The "
                            "key needs to be hashed before being used by the HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Secrets, AreEqualWhenEveryByteIs) {
  EXPECT_TRUE(are_equal_secrets("", ""));
  EXPECT_TRUE(are_equal_secrets("abc\xff", "abc\xff"));
  for (const char* other : {"", "ab", "abcd", "abd", "bbc", "ABC"})
    EXPECT_FALSE(are_equal_secrets("abc", other)) << other;
}

}  // namespace
}  // namespace lockstep::horovod
