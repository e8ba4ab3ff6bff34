#include "data/lines.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace lockstep::data {
namespace {

constexpr RowRules kCsv{.quotes = true};
constexpr RowRules kLines{.skip_empty = false};
constexpr RowRules kJson{.skip_blank = true};

std::vector<RowBlock> scanned(std::string_view text, const RowRules& rules, std::int64_t target = 1,
                              std::size_t piece = 1 << 20) {
  RowScanner scanner(rules, target);
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) scanner.feed(text.substr(0, piece));
  return scanner.finish();
}

std::vector<std::string> rows_of(std::string_view text, const RowRules& rules) {
  std::vector<std::string> found;
  for (const RowBlock& block : scanned(text, rules)) {
    EXPECT_EQ(block.rows, 1);
    found.emplace_back(
        text.substr(static_cast<std::size_t>(block.begin), static_cast<std::size_t>(block.end - block.begin)));
  }
  return found;
}

using Rows = std::vector<std::string>;

TEST(RowScanner, LinesAreRows) {
  EXPECT_EQ(rows_of("a\n\nb\r\nc", kLines), (Rows{"a\n", "\n", "b\r\n", "c"}));
  EXPECT_EQ(rows_of("{}\n \t\r\n{\"a\": 1}\n\n", kJson), (Rows{"{}\n", "{\"a\": 1}\n"}));
  EXPECT_EQ(rows_of("", kLines), Rows{});
}

TEST(RowScanner, QuotesHideLineBreaks) {
  EXPECT_EQ(rows_of("a,\"x\ny\"\nb,\"\"\"\n\"\"\"\nc\n", kCsv), (Rows{"a,\"x\ny\"\n", "b,\"\"\"\n\"\"\"\n", "c\n"}));
  EXPECT_EQ(rows_of("\"a\r\nb\"\r\nc", kCsv), (Rows{"\"a\r\nb\"\r", "c"}));
}

TEST(RowScanner, AQuoteWithinAFieldIsPlain) {
  EXPECT_EQ(rows_of("5\" disk,1\n3\",2\n", kCsv), (Rows{"5\" disk,1\n", "3\",2\n"}));
}

TEST(RowScanner, EmptyLinesOfCsvAreNoRows) { EXPECT_EQ(rows_of("\n\na\n\r\n\nb\n\n", kCsv).size(), 2u); }

TEST(RowScanner, DoesNotDependOnThePieces) {
  std::mt19937 random(5);
  const std::string alphabet = "ab,\"\n\r \t";
  for (int n = 0; n < 500; ++n) {
    std::string text(std::uniform_int_distribution<std::size_t>(0, 60)(random), ' ');
    for (char& c : text) c = alphabet[std::uniform_int_distribution<std::size_t>(0, alphabet.size() - 1)(random)];
    for (const RowRules& rules : {kCsv, kLines, kJson})
      for (const std::int64_t target : {1, 7, 1000}) {
        const auto whole = scanned(text, rules, target);
        for (const std::size_t piece : {1, 3, 17}) EXPECT_EQ(scanned(text, rules, target, piece), whole) << text;
      }
  }
}

TEST(RowScanner, BlocksAreAboutAsLargeAsTheTarget) {
  std::string text;
  for (int n = 0; n < 1000; ++n) text += "row " + std::to_string(n) + "\n";
  const auto blocks = scanned(text, kCsv, 100);
  std::int64_t rows = 0, at = 0;
  for (const RowBlock& block : blocks) {
    EXPECT_EQ(block.begin, at);
    EXPECT_EQ(block.first_line, rows + 1);
    at = block.end;
    rows += block.rows;
    EXPECT_LT(block.end - block.begin, 110);
    if (block != blocks.back()) {
      EXPECT_GE(block.end - block.begin, 100);
    }
  }
  EXPECT_EQ(rows, 1000);
  EXPECT_EQ(at, static_cast<std::int64_t>(text.size()));
}

TEST(RowScanner, EscapesAndOtherQuotes) {
  EXPECT_EQ(rows_of("a\\\nb\nc\n", {.quotes = true, .escape = '\\'}), (Rows{"a\\\nb\n", "c\n"}));
  EXPECT_EQ(rows_of("'a\nb'\n\"c\n", {.quotes = true, .quote = '\''}), (Rows{"'a\nb'\n", "\"c\n"}));
  EXPECT_EQ(rows_of("\"a\nb\n", {.quotes = true, .quote = '\0'}), (Rows{"\"a\n", "b\n"}));
  EXPECT_EQ(rows_of("\"a\"\"\nb\n", {.quotes = true, .double_quote = false}), (Rows{"\"a\"\"\n", "b\n"}));
  EXPECT_EQ(rows_of("a\r\n\r\nb\r\n", {.quotes = true, .skip_empty = false}), (Rows{"a\r\n", "\r\n", "b\r\n"}));
}

TEST(RowScanner, GoesOnAfterAnother) {
  const std::string text = "one\n\"two\nlines\"\nthree\nfour";
  const auto whole = scanned(text, kCsv, 1);
  for (const std::size_t cut : {std::size_t{0}, std::size_t{4}, std::size_t{16}, std::size_t{22}}) {
    RowScanner first(kCsv, 1), second(kCsv, 1, static_cast<std::int64_t>(cut), 0);
    first.feed(text.substr(0, cut));
    EXPECT_TRUE(first.at_row_start());
    second.feed(text.substr(cut));
    first.append(std::move(second));
    EXPECT_EQ(first.rows(), 3);
    EXPECT_EQ(first.finish(), whole) << cut;
  }
  RowScanner within(kCsv, 1);
  within.feed(text.substr(0, 9));
  EXPECT_FALSE(within.at_row_start());
}

TEST(RowScanner, AnyBytesAreRows) {
  std::mt19937 random(9);
  for (int n = 0; n < 2000; ++n) {
    std::string text(std::uniform_int_distribution<std::size_t>(0, 200)(random), ' ');
    for (char& c : text) c = static_cast<char>(random());
    RowRules rules{.quotes = n % 2 == 0, .skip_empty = n % 3 != 0};
    rules.quote = static_cast<char>(random());
    rules.escape = static_cast<char>(random());
    rules.delimiter = static_cast<char>(random());
    std::int64_t at = 0;
    for (const RowBlock& block : scanned(text, rules, 1 + n % 20)) {
      EXPECT_GE(block.begin, at);
      EXPECT_GT(block.rows, 0);
      at = block.end;
      lines_before_row(text, rules, block.rows);
    }
    EXPECT_LE(at, static_cast<std::int64_t>(text.size()));
    first_row_length(text, rules);
  }
}

TEST(FirstRow, EndsWithItsLineBreak) {
  EXPECT_EQ(first_row_length("a,b\n1,2\n", kCsv), 4);
  EXPECT_EQ(first_row_length("\n\na,b\r\n1,2\n", kCsv), 7);
  EXPECT_EQ(first_row_length("\"a\nx\",b\n1", kCsv), 8);
  EXPECT_EQ(first_row_length("a,b", kCsv), -1);
  EXPECT_EQ(first_row_length("", kCsv), -1);
}

TEST(LinesBeforeRow, CountsLinesWithinQuotes) {
  const std::string_view text = "a\n\"x\ny\"\n\nb\n";
  EXPECT_EQ(lines_before_row(text, kCsv, 0), 0);
  EXPECT_EQ(lines_before_row(text, kCsv, 1), 1);
  EXPECT_EQ(lines_before_row(text, kCsv, 2), 4);
}

}  // namespace
}  // namespace lockstep::data
