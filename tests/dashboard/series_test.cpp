#include "dashboard/series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "run_folder.h"

namespace lockstep::dashboard {
namespace {

using testing::ElementsAre;

std::map<std::string, double> numbers_in(std::string_view line, bool* good = nullptr) {
  std::map<std::string, double> found;
  const bool is_good = for_each_number(
      line, {"config"}, [&](std::string_view name, double number) { found[std::string(name)] = number; });
  if (good != nullptr) *good = is_good;
  return found;
}

TEST(ForEachNumberTest, FindsNumbersAndBooleansByPath) {
  const auto found = numbers_in(
      R"({"loss": 0.5, "val": {"acc": 1, "deep": {"x": -2e3}}, "ok": true, "name": "a \" {", "list": [1, {"y": 2}], )"
      R"("none": null, "config": {"lr": 9, "in": {"z": 1}}, "k\u0041": 7})");
  EXPECT_EQ(found, (std::map<std::string, double>{
                       {"loss", 0.5}, {"val/acc", 1}, {"val/deep/x", -2000}, {"ok", 1}, {"kA", 7}}));
}

TEST(ForEachNumberTest, ReadsTheWordsOfPython) {
  const auto found = numbers_in(R"({"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999})");
  EXPECT_TRUE(std::isnan(found.at("a")));
  EXPECT_EQ(found.at("b"), INFINITY);
  EXPECT_EQ(found.at("c"), -INFINITY);
  EXPECT_TRUE(found.contains("d"));
}

TEST(ForEachNumberTest, RefusesWhatIsNoObject) {
  for (const std::string line : {"", "1", "[]", "{", "{\"a\"", "{\"a\":", "{\"a\": }", "{\"a\": 1", "{\"a\": 1}}",
                                 "{\"a\": \"", "{\"a\": 1,}", "{\"a\": [1,}", "{\"a\": tru}", "{a: 1}", "{\"a\\"}) {
    bool good = true;
    numbers_in(line, &good);
    EXPECT_FALSE(good) << line;
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  bool good = true;
  numbers_in(deep, &good);
  EXPECT_FALSE(good);
}

class SeriesTest : public testing::Test {
 protected:
  std::vector<double> column(const std::string& name) {
    for (const auto& each : series.columns())
      if (each.name == name) return each.values;
    return {};
  }

  RunFolder folder;
  sys::BeneathFiles files{folder.root};
  Series series{folder.root / "result.json"};
};

TEST_F(SeriesTest, ReadsWhatWasAppendedOnceItIsWhole) {
  series.update(files);
  EXPECT_EQ(series.rows(), 0U);
  folder.write("result.json", "{\"loss\": 1}\n{\"loss\": 2}\n{\"lo");
  series.update(files);
  EXPECT_THAT(column("loss"), ElementsAre(1, 2));
  folder.write("result.json", "ss\": 3, \"late\": 7}\n", std::ios::app);
  series.update(files);
  EXPECT_EQ(series.rows(), 3U);
  EXPECT_THAT(column("loss"), ElementsAre(1, 2, 3));
  EXPECT_THAT(column("late"), ElementsAre(testing::IsNan(), testing::IsNan(), 7));
}

TEST_F(SeriesTest, AnotherFileBeginsAnotherGeneration) {
  folder.write("result.json", "{\"loss\": 1}\n{\"loss\": 2}\n");
  series.update(files);
  const int before = series.generation();
  folder.write("other", "{\"loss\": 5}\n{\"loss\": 6}\n{\"loss\": 7}\n");
  std::filesystem::rename(folder.root / "other", folder.root / "result.json");
  series.update(files);
  EXPECT_NE(series.generation(), before);
  EXPECT_THAT(column("loss"), ElementsAre(5, 6, 7));
  folder.write("result.json", "{\"loss\": 9}\n");  // shorter
  series.update(files);
  EXPECT_THAT(column("loss"), ElementsAre(9));
}

TEST_F(SeriesTest, BadLinesAreCountedAndLeaveNothing) {
  folder.write("result.json", "{\"a\": 1}\n{\"a\": 2, \"b\": 3, oops\nnonsense\n{\"a\": 4}\n");
  series.update(files);
  EXPECT_EQ(series.rows(), 2U);
  EXPECT_EQ(series.bad_lines(), 2U);
  EXPECT_THAT(column("a"), ElementsAre(1, 4));
  EXPECT_THAT(column("b"), testing::Each(testing::IsNan()));
}

TEST_F(SeriesTest, JsonHasTheRowsThatTheClientLacks) {
  folder.write("result.json", "{\"a\": 1}\n{\"a\": NaN, \"<b>\": 2}\n{\"a\": 3}\n");
  series.update(files);
  const int generation = series.generation();
  EXPECT_EQ(parse_json(series_json(series, 1, generation), "")["columns"],
            parse_json(R"({"a": [null, 3], "<b>": [2, null]})", ""));
  const Value whole = parse_json(series_json(series, 1, generation + 1), "");
  EXPECT_EQ(whole["first"], 0);
  EXPECT_EQ(whole["columns"]["a"].size(), 3U);
  EXPECT_EQ(parse_json(series_json(series, 3, generation), "")["columns"]["a"].size(), 0U);
}

TEST_F(SeriesTest, ManyRowsAreThinnedButTheLastIsThere) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"a\": " + std::to_string(i) + "}\n";
  folder.write("result.json", lines);
  series.update(files);
  const Value thinned = parse_json(series_json(series, 0, -1, 100), "");
  EXPECT_EQ(thinned["stride"], 10);
  EXPECT_EQ(thinned["columns"]["a"].size(), 101U);
  EXPECT_EQ(thinned["columns"]["a"].front(), 0);
  EXPECT_EQ(thinned["columns"]["a"].back(), 999);
}

TEST_F(SeriesTest, TheCacheForgetsTheOldestAndReadsItAgain) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"a\": 1}\n";
  SeriesCache cache(files, 20'000);
  for (const char* run : {"one", "two", "three", "one"}) {
    folder.write(std::string(run) + "/result.json", lines);
    cache.with(folder.root / run / "result.json", [](const Series& read) { EXPECT_EQ(read.rows(), 1000U); });
  }
}

}  // namespace
}  // namespace lockstep::dashboard
