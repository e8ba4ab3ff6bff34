#include "agent/text_stream.h"

#include <gtest/gtest.h>

namespace lockstep::agent {
namespace {

std::string through(std::string_view text, std::size_t step) {
  TextStream stream;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += step) {
    const auto part = text.substr(at, step);
    out += stream.add({reinterpret_cast<const std::uint8_t*>(part.data()), part.size()});
  }
  return out + stream.finish();
}

#define SIGN "\xef\xbf\xbd"

struct Case {
  const char* bytes;
  const char* text;
};

class TextStreams : public testing::TestWithParam<Case> {};

TEST_P(TextStreams, AreTheSameHoweverTheyAreCut) {
  const auto& [bytes, text] = GetParam();
  for (std::size_t step = 1; step <= 8; ++step) EXPECT_EQ(through(bytes, step), text) << "cut every " << step;
}

INSTANTIATE_TEST_SUITE_P(
    All, TextStreams,
    testing::Values(Case{"plain\n", "plain\n"}, Case{"", ""},
                    Case{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
                    Case{"a\xff"
                         "b",
                         "a" SIGN "b"},
                    Case{"\x80\x80", SIGN SIGN}, Case{"\xe2\x82", SIGN}, Case{"\xe2\x82z", SIGN "z"},
                    Case{"\xc0\xaf", SIGN SIGN}, Case{"\xed\xa0\x80", SIGN SIGN SIGN},
                    Case{"\xf4\x90\x80\x80", SIGN SIGN SIGN SIGN},
                    Case{"\xf0\x9f\x98\xf0\x9f\x98\x80", SIGN "\xf0\x9f\x98\x80"}));

}  // namespace
}  // namespace lockstep::agent
