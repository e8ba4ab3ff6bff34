#include "store/data_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/array.h>
#include <lockstep/error.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/json.h"
#include "scratch.h"

namespace lockstep::store {
namespace {

using testing::HasSubstr;

Value encode(const Value& value) {
  return encode_data(value, [](const std::string& name) { return name == "w"; });
}

Value parse(const char* text) { return Value::parse(text); }

TEST(DataJson, PlainValuesStayAsTheyAre) {
  const Value plain = parse(R"({"a": [1, 2.5, "x", null, true, {"b": {}}], "z": -3, "y": 18446744073709551615})");
  EXPECT_EQ(encode(plain).dump(), plain.dump());
  EXPECT_EQ(decode_data(plain).dump(), plain.dump());
}

TEST(DataJson, TensorsStayAndMustBeThere) {
  const Value plain = parse(R"({"model": {"$tensor": "w", "kind": "torch"}, "x": {"$tensor": "w"}})");
  EXPECT_EQ(encode(plain), plain);
  EXPECT_EQ(decode_data(plain), plain);
  EXPECT_THAT(message_of<ConfigError>([] { encode(parse(R"({"a": {"$tensor": "v"}})")); }), HasSubstr("\"v\""));
  EXPECT_THROW(encode(parse(R"({"a": {"$tensor": 3}})")), ConfigError);
}

TEST(DataJson, TensorsKeepWhatPythonSaysOfTheirMemory) {
  const Value plain = parse(R"({"t": {"$tensor": "w", "kind": "torch", "dtype": "complex128", "shape": [2, 3],
                                      "layout": [8, 2, 1], "stride": [4, 1], "offset": 1, "conj": true}})");
  EXPECT_EQ(encode(plain), plain);
  EXPECT_EQ(decode_data(plain), plain);
}

TEST(DataJson, DictsWithReservedKeysAreEscaped) {
  const Value plain = parse(R"({"a": {"$set": [1], "b": {"$float": "nan"}}})");
  EXPECT_EQ(encode(plain), parse(R"({"a": {"$dict": [["$set", [1]], ["b", {"$dict": [["$float", "nan"]]}]]}})"));
  EXPECT_EQ(decode_data(encode(plain)), plain);
}

TEST(DataJson, FloatsThatJsonLacks) {
  const double inf = std::numeric_limits<double>::infinity();
  const Value plain = {{"n", std::nan("")}, {"i", inf}, {"m", -inf}, {"f", 0.1}};
  const Value encoded = encode(plain);
  EXPECT_EQ(encoded, parse(R"({"n": {"$float": "nan"}, "i": {"$float": "inf"}, "m": {"$float": "-inf"}, "f": 0.1})"));
  const Value decoded = decode_data(encoded);
  EXPECT_TRUE(std::isnan(decoded["n"].get<double>()));
  EXPECT_EQ(decoded["i"].get<double>(), inf);
  EXPECT_EQ(decoded["m"].get<double>(), -inf);
}

TEST(DataJson, Bytes) {
  for (const auto& [text, base64] :
       {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}}) {
    const std::string_view view(text);
    const Value plain = Value::binary({view.begin(), view.end()});
    EXPECT_EQ(encode(plain), (Value{{"$bytes", base64}}));
    EXPECT_EQ(decode_data(encode(plain)), plain);
  }
  for (const char* bad : {"Zg=", "Z", "Z===", "====", "Zm9!", "Zg==Zg=="}) {
    const Value value{{"$bytes", bad}};
    EXPECT_EQ(decode_data(value), value) << bad;
  }
}

TEST(DataJson, WhatPythonWritesBecomesPlain) {
  EXPECT_EQ(
      decode_data(parse(R"({"t": {"$tuple": [1, {"$tuple": []}]}, "o": {"$ordered_dict": [["k", 1], ["$j", 2]]}})")),
      parse(R"({"t": [1, []], "o": {"k": 1, "$j": 2}})"));
  EXPECT_EQ(decode_data(parse(R"({"state": {"$dict": [[0, "a"], [1.5, "b"], [null, "c"]]}})")),
            parse(R"({"state": {"0": "a", "1.5": "b", "null": "c"}})"));
  EXPECT_EQ(decode_data(parse(R"({"c": {"$counter": [[3, 1]]}, "s": {"$torch_size": [2, 3]}})")),
            parse(R"({"c": {"3": 1}, "s": [2, 3]})"));
}

TEST(DataJson, StateDictsWithMetadata) {
  const Value state = parse(R"({"$ordered_dict": [["w", {"$tensor": "m.w", "kind": "torch"}]],
                                "metadata": {"$ordered_dict": [["", {"version": 1}]]}})");
  EXPECT_EQ(decode_data(state), parse(R"({"w": {"$tensor": "m.w", "kind": "torch"}})"));
  const Value escaped = parse(R"({"metadata": 1, "$ordered_dict": []})");
  EXPECT_EQ(decode_data(escaped), escaped) << "the reserved key comes first";
}

TEST(DataJson, WhatOnlyPythonKnowsStays) {
  for (const char* text :
       {R"({"$set": [1, 2]})", R"({"$object": 0})", R"({"$int": "99999999999999999999"})",
        R"({"$numpy": "float32", "value": 1.5})", R"({"$torch_dtype": "float32"})", R"({"$torch_device": "cuda:0"})",
        R"({"$object": 0, "tensors": [{"$tensor": "w"}]})", R"({"$dict": [[1, 2], ["1", 3]]})", R"({"$dict": 3})",
        R"({"$dict": [[1]]})", R"({"$float": "one"})", R"({"$tuple": {}})"})
    EXPECT_EQ(decode_data(parse(text)), parse(text));
}

/// Whatever a C++ user puts in comes out again, through text.
Value random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 4 ? 6 : 8)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<std::int64_t>(random()) - 2'000'000'000;
    case 3:
      return static_cast<double>(random()) / 7.0;
    case 4:
      return std::string(random() % 5, static_cast<char>('$' + random() % 60));
    case 5:
      return Value::binary(Bytes(random() % 9, static_cast<std::uint8_t>(random())));
    case 6: {
      Value list = Value::array();
      for (auto count = random() % 4; count > 0; --count) list.push_back(random_value(random, depth + 1));
      return list;
    }
    default: {
      static const char* const keys[] = {"a", "$a", "$dict", "$tuple", "$float", "$bytes", "b", ""};
      Value dict = Value::object();
      for (auto count = random() % 4; count > 0; --count) dict[keys[random() % 8]] = random_value(random, depth + 1);
      return dict;
    }
  }
}

TEST(DataJson, RandomValuesRoundTrip) {
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    const Value plain = random_value(random, 0);
    const std::string text = to_json(encode(plain));
    ASSERT_EQ(decode_data(parse_json(text, "test")), plain) << text;
  }
}

TEST(DataJson, ArraysOfMetricsAreNotTakenForBytes) {
  const std::vector<float> numbers{1, 2, 3};
  const Value array = Array{"float32", {3}, memory_of(numbers)};
  EXPECT_THAT(message_of<ConfigError>([&] { encode({{"mean", array}}); }), HasSubstr("array or a tensor"));
}

TEST(DataJson, DepthIsBounded) {
  Value deep = 1;
  for (int i = 0; i < 120; ++i) deep = Value{{"$k", std::move(deep)}};
  EXPECT_NO_THROW(check_json_depth(to_json(encode(deep)), "x")) << "what can be written can be read";
  for (int i = 0; i < 10; ++i) deep = Value{{"$k", std::move(deep)}};
  EXPECT_THAT(message_of<ConfigError>([&] { encode(deep); }), HasSubstr("nested"));

  const std::string nested(1'000'000, '[');
  EXPECT_THAT(message_of<StorageError>([&] { check_json_depth(nested, "x"); }), HasSubstr("nested"));
  EXPECT_NO_THROW(check_json_depth('"' + nested + "\\\"" + nested + '"', "brackets in a string"));
  std::string flat;
  for (int i = 0; i < 10'000; ++i) flat += "[]{}";
  EXPECT_NO_THROW(check_json_depth(flat, "x"));
}

}  // namespace
}  // namespace lockstep::store
