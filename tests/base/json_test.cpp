#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <lockstep/error.h>

#include "growth.h"

namespace lockstep {
namespace {

TEST(Json, WritesWhatPythonsJsonModuleWrites) {
  const Value value{{"b", 1},    {"a", 0.1},      {"s", "x\"y\n"},       {"n", nullptr},
                    {"t", true}, {"l", {1, 2.5}}, {"d", Value::object()}};
  EXPECT_EQ(to_json(value), R"({"b": 1, "a": 0.1, "s": "x\"y\n", "n": null, "t": true, "l": [1, 2.5], "d": {}})");
}

TEST(Json, FloatsReadBackEqualAndStayFloats) {
  for (const double number : {0.1, 1.0, -0.0, 1e300, 5e-324, 1.0 / 3, 123456789.0, 1e22}) {
    const Value back = parse_json(to_json(Value(number)), "test");
    EXPECT_TRUE(back.is_number_float()) << number;
    EXPECT_EQ(back.get<double>(), number);
  }
}

TEST(Json, FloatsThatJsonLacksStandAsWords) {
  const double inf = std::numeric_limits<double>::infinity();
  const Value value{{"a", std::nan("")}, {"b", {inf, -inf}}, {"c", "NaN, -Infinity \" NaN"}};
  const std::string text = to_json(value);
  EXPECT_EQ(text, R"({"a": NaN, "b": [Infinity, -Infinity], "c": "NaN, -Infinity \" NaN"})");
  const Value back = parse_json(text, "test");
  EXPECT_TRUE(std::isnan(back["a"].get<double>()));
  EXPECT_EQ(back["b"][0].get<double>(), inf);
  EXPECT_EQ(back["b"][1].get<double>(), -inf);
  EXPECT_EQ(back["c"], value["c"]);
}

TEST(Json, BrokenTextIsAStorageErrorWithThePlace) {
  try {
    parse_json("{\"a\": ", "run.json");
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("run.json"), std::string::npos);
  }
}

TEST(Json, InvalidUtf8IsReplacedNotThrown) {
  std::string out;
  append_json_string(out,
                     "a\xff"
                     "b");
  EXPECT_EQ(out,
            "\"a\xef\xbf\xbd"
            "b\"");
}

TEST(Json, PrettyTextHasOneKeyALine) {
  EXPECT_EQ(to_pretty_json({{"a", {{"b", 1}}}, {"c", Value::array()}}),
            "{\n  \"a\": {\n    \"b\": 1\n  },\n  \"c\": []\n}\n");
}

TEST(Json, WhatIsTooDeepOrNoUtf8IsRefused) {
  EXPECT_THROW(parse_json(std::string(100'000, '['), "x"), StorageError);
  EXPECT_THROW(parse_json("\"\xff\"", "x"), StorageError);
  EXPECT_THROW(read_as_written("x", [] { return Value(3).value("key", 1); }), StorageError);
  const std::string deepest = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_NO_THROW(parse_json(deepest, "x"));
}

TEST(Json, FindPathPrefersTheKeyItself) {
  const Value value{{"a", {{"b", 1}}}, {"a/b", 2}, {"c", {{"d", {{"e", 3}}}}}};
  EXPECT_EQ(*find_path(value, "a/b"), 2);
  EXPECT_EQ(*find_path(value, "c/d/e"), 3);
  EXPECT_EQ(find_path(value, "c/x"), nullptr);
  EXPECT_EQ(find_path(Value(3), "c"), nullptr);
}

std::string refusal(const Value& value, const std::string& key) {
  try {
    return "nothing but " + value[key].dump();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Value, AMissingKeyIsNamedWithThoseThereAre) {
  const Value value{{"lr", 0.5}, {"model", {{"layers", 2}}}};
  EXPECT_EQ(value["lr"], 0.5);
  EXPECT_EQ(value["model"]["layers"], 2);
  EXPECT_THROW(value["missing"], ConfigError);
  EXPECT_EQ(refusal(value, "rate"), "[value] there is no key \"rate\"; there are \"lr\", \"model\"");
  EXPECT_EQ(refusal(value["model"], "lr"), "[value] there is no key \"lr\"; there are \"layers\"");
  EXPECT_EQ(refusal(Value::object(), "lr"), "[value] there is no key \"lr\"; the dict is empty");
  EXPECT_EQ(refusal(Value(3), "lr"), "[value] there is no key \"lr\"; this is not a dict but number");
}

TEST(Json, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(to_json(parse_json(R"({"a": 1, "b": {"c": 2, "c": 3}, "a": [4, 5]})", "test")),
            R"({"a": [4, 5], "b": {"c": 3}})");
}

TEST(Json, ReadsWhatTheLibraryReads) {
  for (const char* text : {"null", "[]", "{}", "-1", "18446744073709551615", "1e3", R"("\u00e9\ud83d\ude00\n")",
                           "[[], [{}]]", R"({"a": [1, {"b": null}], "c": true})"})
    EXPECT_EQ(parse_json(text, "test"), Value::parse(text)) << text;
  for (const char* text : {"", "[1,", "{\"a\"}", "[1] 2", "1e999", "\"\xff\"", "nul"})
    EXPECT_THROW(parse_json(text, "test"), StorageError) << text;
}

TEST(Json, ManyKeysCostNoMoreThanTheirNumber) {
  expect_linear(4'000, [](std::size_t keys) {
    std::string text = "{";
    for (std::size_t i = 0; i < keys; ++i) text += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": 1";
    EXPECT_EQ(parse_json(text + "}", "test").size(), keys);
  });
}

TEST(Json, StringsAreEscapedAsTheLibraryDoes) {
  std::string all = "\u00e9\u20ac\U0001f600\x7f\"\\ plain";
  for (char c = 0; c < 32; ++c) all += c;
  std::string out;
  append_json_string(out, all);
  EXPECT_EQ(out, Value(all).dump());
}

}  // namespace
}  // namespace lockstep
