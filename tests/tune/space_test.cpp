#include "tune/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>

#include "base/json.h"
#include "tune/shown_value.h"

namespace lockstep::tune {
namespace {

using ::testing::HasSubstr;

Space space_of(const char* text) { return Space::parse(Value::parse(text)); }

/// The message of the ConfigError, or "none".
template <class Call>
std::string space_error(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

std::string parse_error(const std::string& domain) {
  return space_error([&] { Space::parse({{"x", {{"$domain", Value::parse(domain)}}}}); });
}

TEST(SpaceTest, RefusesWrongDomains) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kind": "uniform", "lower": 2, "upper": 1})", "x: uniform has lower 2"},
      {R"({"kind": "uniform", "lower": 2})", "uniform has no upper"},
      {R"({"kind": "uniform", "lower": "2", "upper": 3})", R"(lower "2"; it must be a finite number)"},
      {R"({"kind": "uniform", "lower": 0, "upper": true})", "upper true; it must be a finite number"},
      {R"({"kind": "uniform", "lower": 0, "upper": 1, "q": 1})", R"(has no option "q"; it has lower, upper)"},
      {R"({"kind": "loguniform", "lower": 0, "upper": 1})", "lower 0"},
      {R"({"kind": "loguniform", "lower": -1, "upper": 1})", "above 0"},
      {R"({"kind": "lograndint", "lower": 0, "upper": 8})", "above 0"},
      {R"({"kind": "randint", "lower": 0.5, "upper": 8})", "whole number"},
      {R"({"kind": "randint", "lower": 3, "upper": 3})", "below upper, which is 3"},
      {R"({"kind": "randint", "lower": 0, "upper": 1e17})", "at most 2^53"},
      {R"({"kind": "quniform", "lower": 0, "upper": 1})", "has no q"},
      {R"({"kind": "quniform", "lower": 0, "upper": 1, "q": 0})", "above 0"},
      {R"({"kind": "quniform", "lower": 0, "upper": 1, "q": -0.5})", "above 0"},
      {R"({"kind": "quniform", "lower": 0.1, "upper": 0.9, "q": 1})", "a multiple of it is between"},
      {R"({"kind": "qrandint", "lower": 1, "upper": 8, "q": 1.5})", "whole number"},
      {R"({"kind": "randn", "mean": 0, "sd": 0})", "sd 0"},
      {R"({"kind": "randn", "sigma": 1})", R"(no option "sigma"; it has mean, sd)"},
      {R"({"kind": "choice", "values": []})", "list of values that is not empty"},
      {R"({"kind": "choice"})", "list of values that is not empty"},
      {R"({"kind": "choice", "values": {"a": 1}})", "list of values that is not empty"},
      {R"({"kind": "grid_search", "values": []})", "list of values that is not empty"},
      {R"({"kind": "triangular", "lower": 0, "upper": 1})", R"("triangular" is no kind of domain; there are )"},
      {R"({"lower": 0, "upper": 1})", "has no kind"},
      {R"({"kind": 3})", "has no kind"},
      {R"("uniform")", "must be a dict with a kind"},
      {R"({"kind": "choice", "values": [1, {"$domain": {"kind": "grid_search", "values": [1]}}]})",
       "grid_search stands inside a choice"},
      {R"({"kind": "choice", "values": [{"a": {"$domain": {"kind": "uniform", "lower": 1, "upper": 0}}}]})",
       "x/a: uniform has lower 1"},
  };
  for (const auto& [domain, message] : cases) EXPECT_THAT(parse_error(domain), HasSubstr(message)) << domain;
}

TEST(SpaceTest, RefusesWhatIsNoSpace) {
  EXPECT_THAT(space_error([] { space_of("[1]"); }), HasSubstr("must be a dict"));
  EXPECT_THAT(space_error([] { space_of(R"({"$domain": {"kind": "randn"}})"); }), HasSubstr("is a domain"));
  EXPECT_THAT(space_error([] { space_of(R"({"a": {"$domain": {"kind": "randn"}, "b": 1}})"); }),
              HasSubstr("a: $domain stands beside other keys"));
  Value deep = {{"$domain", {{"kind", "randn"}}}};
  for (int n = 0; n < 300; ++n) deep = {{"a", std::move(deep)}};
  EXPECT_THAT(space_error([&] { Space::parse(deep); }), HasSubstr("nested too deeply"));
}

const char* const kNested = R"({
  "seed": 7,
  "layers": [{"$domain": {"kind": "randint", "lower": 1, "upper": 4}}, "fixed"],
  "model": {"$domain": {"kind": "choice", "values": [
    "none",
    {"kind": "tree", "size": {"$domain": {"kind": "qrandint", "lower": 2, "upper": 8, "q": 2}}},
    {"kind": "net", "size": {"$domain": {"kind": "uniform", "lower": 0, "upper": 1}},
     "inner": {"$domain": {"kind": "choice", "values": [1, {"$domain": {"kind": "randn"}}]}}}]}}})";

TEST(SpaceTest, NamesDimensionsAndTheirParents) {
  const Space space = space_of(kNested);
  std::vector<std::string> texts;
  for (const auto& it : space.dimensions()) {
    texts.push_back(it.name + " " + std::to_string(it.parent) + " " + std::to_string(it.parent_value));
  }
  EXPECT_THAT(texts, testing::ElementsAre("layers/0 -1 0", "model -1 0", "model/size 1 1", "model/size 1 2",
                                          "model/inner 1 2", "model/inner 4 1"));
}

/// The dimension of a name whose parent has that value.
std::size_t dimension_of(const Space& space, const std::string& name, int parent_value) {
  const auto& all = space.dimensions();
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (all[d].name == name && all[d].parent_value == parent_value) return d;
  }
  throw std::logic_error("no dimension " + name);
}

TEST(SpaceTest, DimensionsOfOtherChoicesAreNotActive) {
  const Space space = space_of(kNested);
  const std::size_t model = dimension_of(space, "model", 0), tree_size = dimension_of(space, "model/size", 1);
  const std::size_t inner = dimension_of(space, "model/inner", 2), innermost = dimension_of(space, "model/inner", 1);
  Point point(space.dimensions().size(), std::nan(""));
  const auto is_active = [&](std::size_t d) { return space.is_active(point, static_cast<int>(d)); };
  EXPECT_TRUE(is_active(model));
  EXPECT_FALSE(is_active(tree_size));
  point[model] = 1;
  EXPECT_TRUE(is_active(tree_size));
  EXPECT_FALSE(is_active(inner));
  point[inner] = 1;  // its own parent has another value
  EXPECT_FALSE(is_active(innermost));
  point[model] = 2;
  EXPECT_TRUE(is_active(innermost));
}

TEST(SpaceTest, ConfigurationsAndPointsAreTheSame) {
  const Space space = space_of(kNested);
  for (const char* text : {
           R"({"seed": 7, "layers": [3, "fixed"], "model": "none"})",
           R"({"seed": 7, "layers": [1, "fixed"], "model": {"kind": "tree", "size": 8}})",
           R"({"seed": 7, "layers": [2, "fixed"], "model": {"kind": "net", "size": 0.25, "inner": 1}})",
           R"({"seed": 7, "layers": [2, "fixed"], "model": {"kind": "net", "size": 1.0, "inner": -1.5}})",
       }) {
    const Value config = Value::parse(text);
    EXPECT_EQ(space.config(space.point(config)), config) << text;
  }
  // Whole numbers stay whole.
  const Value config = space.config(space.point({{"layers", {3, "fixed"}}, {"model", "none"}}));
  EXPECT_TRUE(config.at("layers")[0].is_number_integer());
}

TEST(SpaceTest, ChoicesWithTheSameNamesAreToldApart) {
  const Space space = space_of(R"({"a": {"$domain": {"kind": "choice", "values": [
    {"k": 1, "x": {"$domain": {"kind": "uniform", "lower": 0, "upper": 1}}},
    {"k": 2, "x": {"$domain": {"kind": "uniform", "lower": 5, "upper": 6}}}]}}})");
  const Point low = space.point(Value::parse(R"({"a": {"k": 1, "x": 0.5}})"));
  const Point high = space.point(Value::parse(R"({"a": {"k": 2, "x": 5.5}})"));
  EXPECT_EQ(low[0], 0);
  EXPECT_EQ(low[1], 0.5);
  EXPECT_TRUE(std::isnan(low[2]));
  EXPECT_EQ(high[0], 1);
  EXPECT_TRUE(std::isnan(high[1]));
  EXPECT_EQ(high[2], 5.5);
  EXPECT_EQ(space.point(Value::parse(R"({"a": {"x": 5.5}})"))[0], 1);  // only there it fits
}

TEST(SpaceTest, TheOrderOfKeysDoesNotMatter) {
  const Space space = space_of(R"({"a": {"$domain": {"kind": "choice", "values": [
    {"p": 1, "q": [{"r": 2, "s": 3}]}, {"p": 1, "q": [{"r": 2, "s": 4}]}]}}})");
  EXPECT_EQ(space.point(Value::parse(R"({"a": {"q": [{"s": 4, "r": 2}], "p": 1}})"))[0], 1);
  EXPECT_THROW(space.point(Value::parse(R"({"a": {"q": [{"s": 5, "r": 2}], "p": 1}})")), ConfigError);
  EXPECT_THROW(space.point(Value::parse(R"({"a": {"q": [{"s": 4, "r": 2}], "x": 1}})")), ConfigError);
}

TEST(SpaceTest, WhatAConfigurationLeavesOutIsAbsent) {
  const Space space = space_of(kNested);
  for (const double value : space.point(Value::object())) EXPECT_TRUE(std::isnan(value));
  const Point point = space.point({{"model", {{"kind", "tree"}}}});
  EXPECT_EQ(point[dimension_of(space, "model", 0)], 1);
  EXPECT_TRUE(std::isnan(point[dimension_of(space, "model/size", 1)]));
  EXPECT_TRUE(space_of(R"({"a": 1})").point(Value::object()).empty());
}

TEST(SpaceTest, RefusesWrongConfigurations) {
  const Space space = space_of(kNested);
  const auto error = [&](const char* text) { return space_error([&] { space.point(Value::parse(text)); }); };
  EXPECT_THAT(error(R"({"modle": 1})"), HasSubstr("modle is no parameter of the space; there are model"));
  EXPECT_THAT(error(R"({"layers": [4, "fixed"]})"), HasSubstr("layers/0 is 4; it must be a whole number from 1 to 3"));
  EXPECT_THAT(error(R"({"layers": [1.5, "fixed"]})"), HasSubstr("layers/0 is 1.5"));
  EXPECT_THAT(error(R"({"layers": ["1", "fixed"]})"), HasSubstr("must be a number"));
  EXPECT_THAT(error(R"({"layers": [1]})"), HasSubstr("must be a list of 2"));
  EXPECT_THAT(error(R"({"seed": 8})"), HasSubstr("seed is 8, but the space has the constant 7"));
  EXPECT_THAT(error(R"({"model": {"kind": "tree", "size": 3}})"), HasSubstr("none of its 3 values"));
  EXPECT_THAT(error("[]"), HasSubstr("must be a dict"));
  const Space computed = space_of(R"({"a": {"$domain": {"kind": "sample_from", "id": 1}},
                                      "b": {"$domain": {"kind": "randn"}}})");
  EXPECT_THAT(space_error([&] { computed.point({{"a", 1}}); }), HasSubstr("computed by sample_from"));
}

TEST(SpaceTest, PointsOutsideOfTheirDomainsAreABug) {
  const Space space = space_of(R"({"a": {"$domain": {"kind": "randint", "lower": 0, "upper": 3}}})");
  EXPECT_THROW(space.config({3}), InternalError);
  EXPECT_THROW(space.config({0.5}), InternalError);
  EXPECT_THROW(space.config({std::nan("")}), InternalError);
}

TEST(SpaceTest, GridCountsOnlyCombinationsThatDiffer) {
  const Space space = space_of(R"({
    "a": {"$domain": {"kind": "grid_search", "values": [1, 2]}},
    "b": {"$domain": {"kind": "grid_search", "values": ["x", {"c": {"$domain": {"kind": "grid_search",
          "values": [10, 20, 30]}}}]}},
    "d": {"$domain": {"kind": "uniform", "lower": 0, "upper": 1}}})");
  ASSERT_EQ(space.grid_size(), 2 * (1 + 3));
  std::vector<std::string> texts;
  for (std::int64_t n = 0; n < space.grid_size(); ++n) {
    Point point = space.grid_point(n);
    EXPECT_TRUE(std::isnan(point[3]));
    point[3] = 0.5;
    const Value config = space.config(point);
    texts.push_back(to_json(config.at("a")) + to_json(config.at("b")));
  }
  EXPECT_THAT(texts, testing::ElementsAre(R"(1"x")", R"(1{"c": 10})", R"(1{"c": 20})", R"(1{"c": 30})", R"(2"x")",
                                          R"(2{"c": 10})", R"(2{"c": 20})", R"(2{"c": 30})"));
  EXPECT_THROW(space.grid_point(8), InternalError);
  EXPECT_THROW(space.grid_point(-1), InternalError);
}

TEST(SpaceTest, GridWithoutGridSearchHasOnePoint) {
  EXPECT_EQ(space_of("{}").grid_size(), 1);
  const Space space = space_of(R"({"a": {"$domain": {"kind": "choice", "values": [1, 2]}}})");
  EXPECT_EQ(space.grid_size(), 1);
  EXPECT_TRUE(std::isnan(space.grid_point(0)[0]));
}

TEST(SpaceTest, RefusesAHugeGrid) {
  Value space = Value::object(), values = Value::array();
  for (int n = 0; n < 1000; ++n) values.push_back(n);
  for (int n = 0; n < 6; ++n)
    space["x" + std::to_string(n)] = {{"$domain", {{"kind", "grid_search"}, {"values", values}}}};
  EXPECT_THAT(space_error([&] { Space::parse(space).grid_size(); }), HasSubstr("more than 1e15 points"));
}

TEST(SpaceTest, ComputedValuesStayForTheCaller) {
  const Value text = Value::parse(R"({"a": {"$domain": {"kind": "sample_from", "id": 4}}})");
  const Space space = Space::parse(text);
  EXPECT_TRUE(space.dimensions().empty());
  EXPECT_EQ(space.config({}), text);
}

TEST(SpaceTest, TuplesOfPythonAreShownAsLists) {
  const Space space =
      space_of(R"({"pair": {"$tuple": [{"$domain": {"kind": "uniform", "lower": 0, "upper": 1}}, 3]}})");
  EXPECT_EQ(space.dimensions().at(0).name, "pair/0");
  const Value config = Value::parse(R"({"pair": {"$tuple": [5, {"$object": 1, "$text": "a Model"}]}})");
  EXPECT_THAT(space_error([&] { space.point(config); }), HasSubstr("pair/0 is 5; it must be a number"));
  EXPECT_EQ(shown(config), Value::parse(R"({"pair": [5, "a Model"]})"));
}

}  // namespace
}  // namespace lockstep::tune
