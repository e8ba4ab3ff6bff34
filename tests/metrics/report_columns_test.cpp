#include "metrics/report_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include "scratch_directory.h"

namespace lockstep::metrics {
namespace {

using Kind = ReportColumns::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

/// Each cell as text.
std::vector<std::string> cells_of(const ReportColumns& reports, const ReportColumns::Column& column) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < column.cells.size(); ++i) {
    const std::uint64_t cell = column.cells[i];
    switch (column.kind_of(i)) {
      case Kind::missing:
        texts.emplace_back("-");
        break;
      case Kind::null:
        texts.emplace_back("null");
        break;
      case Kind::boolean:
        texts.emplace_back(cell != 0 ? "true" : "false");
        break;
      case Kind::integer:
        texts.push_back(std::to_string(static_cast<std::int64_t>(cell)));
        break;
      case Kind::number:
        texts.push_back(std::to_string(std::bit_cast<double>(cell)));
        break;
      case Kind::text:
        texts.push_back(reports.texts()[cell]);
        break;
      case Kind::json:
        texts.push_back(reports.others()[cell]);
        break;
    }
  }
  return texts;
}

class ReportColumnsTest : public testing::Test {
 protected:
  ReportColumns read(const std::string& text, std::size_t block = 1 << 20) const {
    std::ofstream(scratch_ / "result.json", std::ios::binary) << text;
    return ReportColumns::read(sys::files(), scratch_ / "result.json", block);
  }
  /// What is said of a file whose second line is this.
  std::string refusal(const std::string& line) const {
    try {
      read("{\"a\": 1}\n" + line + "\n{\"a\": 2}\n");
    } catch (const StorageError& error) {
      return error.what();
    }
    return "";
  }

  ScratchDirectory scratch_;
};

constexpr const char* kOdd =
    "{\"loss\": 0.5, \"deep\": {\"x\": {\"y\": 1}, \"none\": {}}, \"text\": \"a\", \"on\": true}\n"
    "{\"loss\": -1e-3, \"deep\": {\"x\": {\"y\": -2}}, \"text\": \"b\\n\\u00e9\", \"on\": null}\n"
    " {\"text\":\"a\",\"on\":false , \"big\": 18446744073709551616, \"list\": [1, {\"z\": \"]\"}], \"\": NaN} \n"
    "{}\n"
    "{\"deep/x/y\": 7, \"deep\": {\"x\": {\"y\": 8}}, \"loss\": -Infinity, \"\\u00e9\": \"\xc3\xa9\"}\n";

TEST_F(ReportColumnsTest, OneForEveryPath) {
  for (const std::size_t block : {1, 7, 100, 1 << 20}) {
    ReportColumns reports = read(kOdd, block);
    std::vector<std::string> names;
    std::vector<std::vector<std::string>> cells;
    for (const auto& column : reports.columns()) {
      names.push_back(column.name);
      cells.push_back(cells_of(reports, column));
    }
    EXPECT_THAT(names, ElementsAre("loss", "deep/x/y", "text", "on", "big", "list", "", "\xc3\xa9"));
    ASSERT_EQ(cells.size(), 8U);
    EXPECT_THAT(cells[0], ElementsAre("0.500000", "-0.001000", "-", "-", "-inf"));
    EXPECT_THAT(cells[1], ElementsAre("1", "-2", "-", "-", "8"));
    EXPECT_THAT(cells[2], ElementsAre("\"a\"", "\"b\\n\\u00e9\"", "\"a\"", "-", "-"));
    EXPECT_THAT(cells[3], ElementsAre("true", "null", "false", "-", "-"));
    EXPECT_THAT(cells[4], ElementsAre("-", "-", "18446744073709551616", "-", "-"));
    EXPECT_THAT(cells[5], ElementsAre("-", "-", "[1, {\"z\": \"]\"}]", "-", "-"));
    EXPECT_THAT(cells[6], ElementsAre("-", "-", "nan", "-", "-"));
    EXPECT_THAT(cells[7], ElementsAre("-", "-", "-", "-", "\"\xc3\xa9\""));
    EXPECT_EQ(reports.texts().size(), 3U) << "equal texts are kept once";
  }
}

TEST_F(ReportColumnsTest, KindsAreKnown) {
  ReportColumns reports = read("{\"a\": 1, \"b\": 1}\n{\"a\": 2, \"b\": 2.5}\n");
  EXPECT_TRUE(reports.columns()[0].has_only({Kind::integer}));
  EXPECT_TRUE(reports.columns()[0].kinds.empty());
  EXPECT_FALSE(reports.columns()[1].has_only({Kind::integer}));
  EXPECT_TRUE(reports.columns()[1].has_only({Kind::integer, Kind::number, Kind::missing}));
}

TEST_F(ReportColumnsTest, NumbersAreExact) {
  ReportColumns reports = read("{\"a\": 0.1, \"b\": 9223372036854775807, \"c\": 1e999, \"d\": -9223372036854775808}\n");
  const auto& columns = reports.columns();
  EXPECT_EQ(std::bit_cast<double>(columns[0].cells[0]), 0.1);
  EXPECT_EQ(static_cast<std::int64_t>(columns[1].cells[0]), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(std::bit_cast<double>(columns[2].cells[0]), std::numeric_limits<double>::infinity());
  EXPECT_EQ(static_cast<std::int64_t>(columns[3].cells[0]), std::numeric_limits<std::int64_t>::min());
}

TEST_F(ReportColumnsTest, TheLaterOfTwoValuesWithOnePathCounts) {
  ReportColumns reports = read("{\"a\": {\"b\": \"text\"}, \"a/b\": 1}\n{\"a\": {\"b\": null}, \"a/b\": 2}\n");
  ASSERT_EQ(reports.columns().size(), 1U);
  const ReportColumns::Column& column = reports.columns()[0];
  EXPECT_THAT(cells_of(reports, column), ElementsAre("1", "2"));
  EXPECT_TRUE(column.has_only({Kind::integer}));
  EXPECT_FALSE(column.has_only({Kind::text, Kind::null}));
}

TEST_F(ReportColumnsTest, HalfALineAtTheEndIsDropped) {
  for (const char* half :
       {"{\"a\": 3, \"ne", "{\"a\": 3", "{", "{\"a\": 3, \"new\": \"tex", "{\"a\": 3, \"new\": tr"}) {
    ReportColumns reports = read(std::string("{\"a\": 1}\n{\"a\": 2}\n") + half);
    ASSERT_EQ(reports.columns().size(), 1U) << half;
    EXPECT_THAT(cells_of(reports, reports.columns()[0]), ElementsAre("1", "2")) << half;
  }
  ReportColumns whole = read("{\"a\": 1}\n{\"a\": 2}");
  EXPECT_THAT(cells_of(whole, whole.columns()[0]), ElementsAre("1", "2"));
}

TEST_F(ReportColumnsTest, OtherLinesThatAreNoReportsAreNamed) {
  const std::string deep(100'000, '[');
  for (const std::string& line : {"null"s,
                                  "[]"s,
                                  "3"s,
                                  ""s,
                                  "{\"a\": 1"s,
                                  "{\"a\": 1} 2"s,
                                  "{\"a\": 01}"s,
                                  "{\"a\": 1.}"s,
                                  "{\"a\": .5}"s,
                                  "{\"a\": +1}"s,
                                  "{\"a\": tru}"s,
                                  "{\"a\": \"\\q\"}"s,
                                  "{\"a\": \"\\u12g4\"}"s,
                                  "{\"a\": \"\xff\"}"s,
                                  "{\"a\": \"\t\"}"s,
                                  "{\"a\": [1,]}"s,
                                  "{\"a\": [1 2]}"s,
                                  "{\"a\" 1}"s,
                                  "{a: 1}"s,
                                  "{\"a\": 1,}"s,
                                  "{\"a\": {\"b\": 1}"s,
                                  "\0"s,
                                  "{\"a\": "s + deep + "}"}) {
    const std::string why = refusal(line);
    EXPECT_THAT(why, HasSubstr("line 2 of ")) << line.substr(0, 40);
    EXPECT_THAT(why, HasSubstr("result.json is not what Lockstep writes: ")) << line.substr(0, 40);
  }
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), HasSubstr("nested more than 500 levels deep"));
}

TEST_F(ReportColumnsTest, NoFileHasNoColumns) {
  EXPECT_TRUE(ReportColumns::read(sys::files(), scratch_ / "none.json").columns().empty());
  EXPECT_TRUE(read("").columns().empty());
  EXPECT_TRUE(read("{}\n{}\n").columns().empty());
}

}  // namespace
}  // namespace lockstep::metrics
