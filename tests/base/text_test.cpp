#include "base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Text, ListsNumbersAsPeopleDo) {
  EXPECT_EQ(listed({}), "none");
  EXPECT_EQ(listed({4}), "4");
  EXPECT_EQ(listed({1, 2}), "1 and 2");
  EXPECT_EQ(listed({1, 2, 3}), "1, 2 and 3");
}

TEST(Text, QuotesEscapeWhatTerminalsObey) {
  EXPECT_EQ(in_quotes("a\x1b[31m\"\n"), "\"a\\x1b[31m\\\"\\x0a\"");
  EXPECT_EQ(in_quotes("\u009b31m \u00a0\u00c2\xc2"), "\"\\x9b31m \u00a0\u00c2\xc2\"");
}

TEST(Text, PrintableTextHasNoControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\t\n\x7f\u009b31m"), "a?[31m????31m");
  EXPECT_EQ(printable("\u00a0\u00c2 \u00e4"), "\u00a0\u00c2 \u00e4");
}

TEST(Text, CountsAndCutsCharacters) {
  EXPECT_EQ(text_length("a\u00e4\u20ac"), 3U);
  EXPECT_EQ(first_characters("a\u00e4\u20acb", 2), "a\u00e4");
  EXPECT_EQ(first_characters("ab", 5), "ab");
}

TEST(Text, ClosestFirst) {
  EXPECT_EQ(joined(closest_first({"loss", "accuracy", "val_loss", "val_lot"}, "val_los"), " "),
            "val_loss val_lot loss accuracy");
  EXPECT_TRUE(closest_first({}, "x").empty());
}

TEST(Text, DurationsAndSizes) {
  EXPECT_EQ(human_duration(1.25), "1.2s");
  EXPECT_EQ(human_duration(64), "1m 04s");
  EXPECT_EQ(human_duration(7800), "2h 10m");
  EXPECT_EQ(human_size(999), "999 B");
  EXPECT_EQ(human_size(1.5e6), "1.5 MB");
}

}  // namespace
}  // namespace lockstep
