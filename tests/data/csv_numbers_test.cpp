#include "data/csv_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using Type = NumberField::Type;

constexpr RowRules kComma{.quotes = true};

/// The columns of rows with a double, something that is not wanted, and an integer; nothing if they are not plain.
struct Columns {
  std::vector<double> floats;
  std::vector<std::int64_t> integers;
};

std::optional<Columns> parsed(std::string_view text, std::size_t rows, const RowRules& rules = kComma) {
  Columns columns{std::vector<double>(rows), std::vector<std::int64_t>(rows)};
  const std::vector<NumberField> fields{{Type::float64, reinterpret_cast<std::byte*>(columns.floats.data())},
                                        {},
                                        {Type::int64, reinterpret_cast<std::byte*>(columns.integers.data())}};
  if (!parse_numbers(text, static_cast<std::int64_t>(rows), fields, rules)) return std::nullopt;
  return columns;
}

TEST(ParseNumbers, ReadsPlainNumbers) {
  const auto found = parsed("0.5,a,1\n-2,,-7\r\n1e3,b c,007\n.25,x,0", 4);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->floats, ElementsAre(0.5, -2, 1000, 0.25));
  EXPECT_THAT(found->integers, ElementsAre(1, -7, 7, 0));
  EXPECT_TRUE(parsed("1;x;2\n", 1, {.quotes = true, .delimiter = ';'}));
  EXPECT_TRUE(parsed("", 0));
}

TEST(ParseNumbers, NarrowTypesHaveTheirOwnLimits) {
  float small = 0;
  std::int32_t number = 0;
  const std::vector<NumberField> fields{{Type::float32, reinterpret_cast<std::byte*>(&small)},
                                        {Type::int32, reinterpret_cast<std::byte*>(&number)}};
  ASSERT_TRUE(parse_numbers("0.1,2147483647\n", 1, fields, kComma));
  EXPECT_EQ(small, 0.1F);
  EXPECT_EQ(number, INT32_MAX);
  EXPECT_FALSE(parse_numbers("0.1,2147483648\n", 1, fields, kComma));
  EXPECT_FALSE(parse_numbers("1e39,1\n", 1, fields, kComma));
}

TEST(ParseNumbers, LeavesEverythingElseToOthers) {
  ASSERT_TRUE(parsed("1,x,2\n", 1));
  for (const char* text : {"",
                           ",x,2\n",
                           "1,x,\n",
                           "1,x,2\n\n",
                           "\n1,x,2\n",
                           "1,x\n",
                           "1,x,2,3\n",
                           "\"1\",x,2\n",
                           "1,\"x\",2\n",
                           "1,x,\"2\"\n",
                           "nan,x,2\n",
                           "inf,x,2\n",
                           "-inf,x,2\n",
                           "NULL,x,2\n",
                           "1.#IND,x,2\n",
                           "+1,x,2\n",
                           " 1,x,2\n",
                           "1 ,x,2\n",
                           "0x1,x,2\n",
                           "1e400,x,2\n",
                           "-,x,2\n",
                           "1,x,2.5\n",
                           "1,x,99999999999999999999\n",
                           "1,x,2\r",
                           "1,x,2\r1,x,2\n",
                           "1,x,2\n1,x,2\n",
                           "1\n,x,2\n",
                           "1,x\n,2\n"})
    EXPECT_FALSE(parsed(text, 1)) << text;
  EXPECT_FALSE(parsed("1,x,2\n", 2));
  EXPECT_FALSE(parsed("1,\\,x,2\n", 1, {.quotes = true, .escape = '\\'}));
}

TEST(ParseNumbers, RoundsAsTheLibraryDoes) {
  std::mt19937_64 random(3);
  for (int n = 0; n < 20'000; ++n) {
    const auto wanted = std::bit_cast<double>(random());
    if (!(std::abs(wanted) < 1e300 && std::abs(wanted) > 1e-300)) continue;
    char text[64];
    std::snprintf(text, sizeof text, "%.*g,,0\n", n % 25 + 1, wanted);
    const auto found = parsed(text, 1);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(found->floats.front(), std::strtod(text, nullptr)) << text;
  }
}

TEST(ParseNumbers, RulesMustNotLookLikeNumbers) {
  EXPECT_TRUE(can_parse_numbers(kComma, {"", "NA", "nan", "-1.#IND", "1.#QNAN", "-"}));
  for (const char* number : {"-999", "0", ".5", "1e400", "99999999999999999999"})
    EXPECT_FALSE(can_parse_numbers(kComma, {number})) << number;
  EXPECT_FALSE(can_parse_numbers({.quotes = true, .delimiter = '.'}, {}));
  EXPECT_FALSE(can_parse_numbers({.quotes = true, .quote = '1'}, {}));
  EXPECT_FALSE(can_parse_numbers({.quotes = true, .escape = 'e'}, {}));
}

}  // namespace
}  // namespace lockstep::data
