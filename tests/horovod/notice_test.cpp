#include "horovod/notice.h"

#include <gtest/gtest.h>

#include <random>

#include "horovod/hmac.h"
#include "rendezvous_fixture.h"

namespace lockstep::horovod {
namespace {

using Place = std::pair<std::string, int>;

std::string key() {
  std::string bytes;
  for (char each = 0; each < 32; ++each) bytes += each;
  return bytes;
}

// What Python makes of ({"lo": [("127.0.0.1", 54321)]}, bytes(range(32))), and of one with three addresses.
constexpr const char* kOne =
    "gAWVQgAAAAAAAAB9lIwCbG+UXZSMCTEyNy4wLjAuMZRNMdSGlGFzQyAAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eH5SGlC4=";
constexpr const char* kThree =
    "gAWVbgAAAAAAAAB9lCiMAmxvlF2UjAkxMjcuMC4wLjGUTTkwhpRhjARldGgwlF2UKIwIMTAuMC4wLjWUTTkwhpSMCDEwLjAuMC42lE05MIaUZXVD"
    "IAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4flIaULg==";
/// The first one's bytes, without PROTO and FRAME.
const std::string kBody = std::string("}\x94\x8c\x02lo\x94]\x94\x8c\x09") + "127.0.0.1\x94M\x31\xd4\x86\x94" +
                          "asC\x20" + key() + "\x94\x86\x94.";

TEST(NoticeAddress, IsReadAsPythonWritesIt) {
  const auto one = read_notice_address(kOne);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->places, (std::vector<Place>{{"127.0.0.1", 54321}}));
  EXPECT_EQ(one->key, key());
  const auto three = read_notice_address(kThree);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->places, (std::vector<Place>{{"127.0.0.1", 12345}, {"10.0.0.5", 12345}, {"10.0.0.6", 12345}}));
  EXPECT_EQ(three->key, key());
  ASSERT_TRUE(read_notice_address(base64(kBody))) << "the body that other tests change";
}

TEST(NoticeAddress, TheSameTextMayBeMeantTwice) {
  const std::string body = std::string("}\x94(\x8c\x01") + "a\x94]\x8c\x09" + "127.0.0.1\x94K\x07\x86" + "a\x8c\x01" +
                           "b]h\x02J" + std::string("\x08\0\0\0", 4) + "\x86" + "auC\x01k\x86.";
  const auto read = read_notice_address(base64(body));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->places, (std::vector<Place>{{"127.0.0.1", 7}, {"127.0.0.1", 8}}));
}

TEST(NoticeAddress, OnlyTheLoopbackIsSpokenTo) {
  EXPECT_EQ(read_notice_address(kThree)->loopback(), Place("127.0.0.1", 12345));
  EXPECT_EQ((NoticeAddress{{{"10.0.0.5", 1}, {"127.8.0.1", 2}}, "k"}).loopback(), Place("127.8.0.1", 2));
  for (const char* other : {"10.0.0.5", "0.0.0.0", "128.0.0.1", "::1", "localhost", "127.1", "127.0.0.1.evil", ""})
    EXPECT_EQ((NoticeAddress{{{other, 1}}, "k"}).loopback(), std::nullopt) << other;
}

TEST(NoticeAddress, NothingIsCalledOrMade) {
  // A list that is made by calling something, an object that is built, persistent ids, extensions, big or text forms.
  for (const std::string opcodes : {"cos\nsystem\n\x8c\x02id\x85R", "\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R",
                                    "cos\nsystem\n)\x81", "}}b", "Pid\n", "\x82\x01", "I1\n", "Vtext\n", "B\x01\0\0\0x",
                                    "N", "\x88", ")", "\x85", "0", "2", "q\x01", "j\x01\0\0\0", "\x96"})
    EXPECT_EQ(read_notice_address(base64(opcodes + kBody)), std::nullopt) << opcodes;
}

TEST(NoticeAddress, OtherShapesAreRefused) {
  const auto bytes_key = "C\x01k";
  const std::vector<std::string> bodies = {
      ".",
      "}.",
      "}}\x86.",
      std::string("]") + bytes_key + "\x86.",                                      // no dict
      std::string("}") + "\x8c\x01k\x86.",                                         // the key is text
      std::string("}") + "C" + std::string(1, '\0') + "\x86.",                     // the key is empty
      std::string("}") + "C\x41" + std::string(65, 'k') + "\x86.",                 // and too long
      std::string("}\x8c\x01") + "a]K\x01" + "as" + bytes_key + "\x86.",           // a place is a number
      std::string("}\x8c\x01") + "a]K\x01K\x01\x86" + "as" + bytes_key + "\x86.",  // an address is one
      std::string("}\x8c\x01") + "a]\x8c\x01" + "bK" + std::string(1, '\0') + "\x86" + "as" + bytes_key +
          "\x86.",                                                                                      // port 0
      std::string("}\x8c\x01") + "a]\x8c\x01" + "bJ\xff\xff\xff\xff\x86" + "as" + bytes_key + "\x86.",  // port -1
      std::string("}K\x01]s") + bytes_key + "\x86.",  // a name is a number
      std::string("}(K\x01u") + bytes_key + "\x86.",  // half an item
      std::string("}") + "(" + bytes_key + "\x86.",   // a mark in a pair
      std::string("}") + bytes_key + "\x86.x",
      std::string("}") + bytes_key + ".",  // more than one
      std::string("h\0", 2) + bytes_key + "\x86.",
      std::string("}\x94h\0", 4) + "\x86.",  // nothing to give again
      "s.",
      "u.",
      "a.",
      "e.",
      "\x86.",
      "\x94.",
      "K",
      "\x8c\x05"
      "ab",
      "(e.",
      "(u."};
  for (const auto& body : bodies)
    EXPECT_EQ(read_notice_address(base64(body)), std::nullopt) << testing::PrintToString(body);
  EXPECT_EQ(read_notice_address(base64("\x80\x01" + kBody)), std::nullopt) << "an old protocol";
  EXPECT_EQ(read_notice_address(base64("\x95" + std::string(8, '\xff') + kBody)), std::nullopt) << "a frame too long";
}

TEST(NoticeAddress, IsBounded) {
  EXPECT_EQ(read_notice_address(std::string(1 << 20, 'A')), std::nullopt);
  const auto many = [](const std::string& each) {
    std::string bytes =
        "}\x8c\x01"
        "a](";
    while (bytes.size() < 12'000) bytes += each;
    return base64(bytes +
                  "es"
                  "C\x01k\x86.");
  };
  EXPECT_EQ(read_notice_address(many("\x8c\x01"
                                     "bK\x01\x86")),
            std::nullopt)
      << "too many places";
  EXPECT_EQ(read_notice_address(base64(std::string(12'000, ']'))), std::nullopt);
  EXPECT_EQ(read_notice_address(base64(std::string(6'000, ']') + std::string(6'000, 'a'))), std::nullopt);
  std::string nested = "K\x01";
  while (nested.size() < 12'000) nested += "K\x01\x86";
  EXPECT_EQ(read_notice_address(base64(nested + ".")), std::nullopt);
}

TEST(NoticeAddress, WhatIsCutOrIsNoBase64IsRefused) {
  for (const std::string whole : {kOne, kThree})
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_EQ(read_notice_address(whole.substr(0, size)), std::nullopt) << size;
  for (std::size_t size = 0; size < kBody.size(); ++size)
    EXPECT_EQ(read_notice_address(base64(kBody.substr(0, size))), std::nullopt) << size;
  for (const char* text : {"", "====", "A===", "AA=A", "A\nAA", "gAWV gAW", "\xff\xff\xff\xff"})
    EXPECT_EQ(read_notice_address(text), std::nullopt) << text;
}

/// Whatever comes is either refused or an address with all its parts in bounds.
TEST(NoticeAddress, SurvivesWhateverComes) {
  std::mt19937 random(7);
  const std::string opcodes = std::string("\x80\x95\x94h(}]KMJ\x8c") + "C\x86" + "aseu." + std::string("\0\x01\x02", 3);
  int read = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string bytes = kBody;
    if (round % 3 == 0) bytes.assign(random() % 80, '\0');
    for (char& each : bytes) {
      const auto choice = random() % 64;
      if (round % 3 == 0 || choice == 0) each = opcodes[random() % opcodes.size()];
      if (choice == 1) each = static_cast<char>(random());
    }
    if (round % 5 == 0) bytes.insert(random() % (bytes.size() + 1), 1, opcodes[random() % opcodes.size()]);
    const auto address = read_notice_address(base64(bytes));
    if (!address) continue;
    ++read;
    EXPECT_TRUE(!address->key.empty() && address->key.size() <= 64);
    for (const auto& [host, port] : address->places) EXPECT_TRUE(host.size() < 256 && port > 0 && port < 65536);
  }
  EXPECT_GT(read, 1000) << "it is no test of refusals alone";
}

TEST(Notice, IsSignedAndCounted) {
  const std::string text = notice_text(key(), 7);
  const std::string body = text.substr(36);
  EXPECT_EQ(text.substr(0, 32), hmac_sha256(key(), body));
  EXPECT_EQ(text.substr(32, 4), std::string({static_cast<char>(body.size()), 0, 0, 0}));
  EXPECT_EQ(body, std::string("\x80\x02") + "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(X" +
                      std::string("\x09\0\0\0", 4) + "timestampJ" + std::string("\x07\0\0\0", 4) + "X" +
                      std::string("\x03\0\0\0", 4) + "resK\x03ub.");
  EXPECT_EQ(notice_text(key(), 0x01020304).find(std::string("J\x04\x03\x02\x01")), 36 + body.find('J'));
}

}  // namespace
}  // namespace lockstep::horovod
