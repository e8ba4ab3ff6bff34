#include "driver/worker_line.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

/// All that a reader sees of `pieces`.
std::string read_as(const std::vector<std::string>& pieces) {
  WorkerLine line("> ");
  std::string out;
  for (const auto& piece : pieces) {
    const auto [whole, unfinished] = line.add(piece);
    out += whole + unfinished;
  }
  return out;
}

TEST(WorkerLine, ThePrefixStandsAtTheBeginningAndBehindEveryReturn) {
  EXPECT_EQ(read_as({"a\nb", "c\n\n"}), "> a\n> bc\n> \n");
  EXPECT_EQ(read_as({"\r  0%", "\r 50%", "\r100%\n"}), "> \r>   0%\r>  50%\r> 100%\n");
  EXPECT_EQ(read_as({"10%\r", "20%\r", "\nx"}), "> 10%\r> 20%\r\n> x") << "a return is shown with what follows";
}

TEST(WorkerLine, WholeLinesAndTheUnfinishedOneAreTwoThings) {
  WorkerLine line("> ");
  auto [whole, unfinished] = line.add("a\nb\nc");
  EXPECT_EQ(whole, "> a\n> b\n");
  EXPECT_EQ(unfinished, "> c");
  EXPECT_EQ(line.redraw(), "> c");
  line.add("d\re");
  EXPECT_EQ(line.redraw(), "> e");
  EXPECT_TRUE(line.begun());
  EXPECT_EQ(line.add("\n").whole, "\n");
  EXPECT_FALSE(line.begun());
  EXPECT_EQ(line.redraw(), "");
}

TEST(WorkerLine, ControlSequencesAreLeftOutWhereverTheyAreCut) {
  EXPECT_EQ(read_as({"\x1b[1;31mred\x1b[0m \x1b[2J\x1b[?25l.\n"}), "> red .\n");
  const std::string text = "a\x1b[38;5;12mb\x1b[Kc\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(read_as({text.substr(0, cut), text.substr(cut)}), "> abc\n") << cut;
}

TEST(WorkerLine, OtherControlCharactersAreShownAsSuch) {
  EXPECT_EQ(read_as({"\x1b]0;title\x07\b\x7f\u009b31m\ttab \u00e4\u00a0\n"}), "> ?]0;title????31m\ttab \u00e4\u00a0\n");
  EXPECT_EQ(read_as({"\x1b[" + std::string(100, '1') + "m\n"}), "> ?[" + std::string(100, '1') + "m\n") << "too long";
  EXPECT_EQ(read_as({"\x1b", "c"}), "> ?c");
}

TEST(WorkerLine, KnowsWhetherItWouldBeMissedAndHowWideItIs) {
  WorkerLine line("> ");
  line.add("x");
  const std::size_t one = line.columns();
  line.add("\r\u20ac\u20ac\u20ac\r \r");
  EXPECT_EQ(line.columns(), one + 2) << "at its widest";
  EXPECT_TRUE(line.begun() && line.blank());
  line.redraw();
  EXPECT_EQ(line.columns(), one);
}

}  // namespace
}  // namespace lockstep::driver
