#include "tune/importance.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace lockstep::tune {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

Dimension importance_real(const std::string& name, double lower = 0, double upper = 1, bool log = false) {
  return {name, {.kind = Domain::Kind::real, .lower = lower, .upper = upper, .log = log}};
}

Dimension importance_choice(const std::string& name, int choices) {
  return {name, {.kind = Domain::Kind::category, .choices = choices}};
}

struct Trials {
  std::vector<Dimension> dimensions;
  std::vector<Point> points = {};
  std::vector<double> values = {};

  void add(int count, const std::function<double(const Point&)>& function) {
    std::mt19937_64 random(7);
    for (int i = 0; i < count; ++i) {
      Point point;
      for (const Dimension& dimension : dimensions) {
        const double place = std::uniform_real_distribution<>(0, 1)(random);
        const bool active =
            dimension.parent < 0 || point[static_cast<std::size_t>(dimension.parent)] == dimension.parent_value;
        point.push_back(active ? value_at(dimension.domain, place) : kNothing);
      }
      values.push_back(function(point));
      points.push_back(std::move(point));
    }
  }
  std::vector<Importance> importance(std::uint64_t seed = 0) const {
    return Forest::fit(dimensions, points, values, {.seed = seed}).importance();
  }
};

TEST(Importance, OfAnAdditiveFunctionIsTheShareOfEachTerm) {
  Trials trials{{importance_real("a"), importance_real("b"), importance_real("nothing")}};
  // Variances 9/12 and 1/12.
  trials.add(1500, [](const Point& p) { return 3 * p[0] + p[1]; });
  const auto found = trials.importance();
  EXPECT_NEAR(found[0].alone, 0.9, 0.03);
  EXPECT_NEAR(found[1].alone, 0.1, 0.03);
  EXPECT_NEAR(found[2].alone, 0.0, 0.01);
  EXPECT_NEAR(found[0].total, 0.9, 0.05);
  EXPECT_LT(found[2].total, 0.03);
}

TEST(Importance, AnInteractionCountsOnlyInTheTotal) {
  Trials trials{{importance_real("a", -1, 1), importance_real("b", -1, 1), importance_real("c", -1, 1)}};
  trials.add(2000, [](const Point& p) { return p[0] * p[1]; });
  const auto found = trials.importance();
  EXPECT_LT(found[0].alone, 0.1);
  EXPECT_LT(found[1].alone, 0.1);
  EXPECT_GT(found[0].total, 0.8);
  EXPECT_GT(found[1].total, 0.8);
  EXPECT_LT(found[2].total, 0.1);
}

TEST(Importance, OfTwoChoicesThatATreeSeparatesIsExact) {
  Trials trials{{importance_choice("a", 2), importance_choice("b", 3)}};
  const double table[2][3] = {{0, 1, 2}, {4, 5, 12}};
  trials.add(400, [&](const Point& p) { return table[static_cast<int>(p[0])][static_cast<int>(p[1])]; });
  // By hand: mean 4, variance 47/3; of the means of a 9, of those of b 14/3.
  const auto found = trials.importance();
  EXPECT_NEAR(found[0].alone, 9.0 / (47.0 / 3), 1e-9);
  EXPECT_NEAR(found[1].alone, (14.0 / 3) / (47.0 / 3), 1e-9);
  EXPECT_NEAR(found[0].total, 1 - found[1].alone, 1e-9);
  EXPECT_NEAR(found[1].total, 1 - found[0].alone, 1e-9);
}

TEST(Importance, LogarithmicParametersCountAsTheyAreDrawn) {
  Trials trials{{importance_real("lr", 1e-6, 1, true), importance_real("b", 0, 6)}};
  trials.add(1500, [](const Point& p) { return std::log10(p[0]) + p[1]; });
  const auto found = trials.importance();
  EXPECT_NEAR(found[0].alone, 0.5, 0.04);
  EXPECT_NEAR(found[1].alone, 0.5, 0.04);
}

TEST(Importance, AParameterThatDependsOnAChoiceDoesNotTakeTheChoicesShare) {
  Trials trials{{importance_choice("optimizer", 2), importance_real("momentum")}};
  trials.dimensions[1].parent = 0;
  trials.dimensions[1].parent_value = 1;
  trials.add(500, [](const Point& p) { return p[0]; });
  auto found = trials.importance();
  EXPECT_NEAR(found[0].total, 1, 1e-9);
  EXPECT_NEAR(found[1].total, 0, 1e-9) << "whether it is there says the same as the choice";

  Trials both{trials.dimensions};
  both.add(1500, [](const Point& p) { return p[0] == 1 ? 10 * p[1] : 5; });
  found = both.importance();
  EXPECT_LT(found[0].alone, 0.05);
  EXPECT_GT(found[1].alone, 0.4);
  EXPECT_GT(found[1].total, 0.9);
}

TEST(Importance, IsTheSameForTheSameSeed) {
  Trials trials{{importance_real("a"), importance_choice("b", 4)}};
  trials.add(100, [](const Point& p) { return std::sin(9 * p[0]) * p[1]; });
  const auto first = trials.importance(1), second = trials.importance(1), other = trials.importance(2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first[i].alone, second[i].alone);
    EXPECT_EQ(first[i].total, second[i].total);
  }
  EXPECT_NE(first[0].alone, other[0].alone);
}

TEST(Importance, OneDivergedTrialHidesNothing) {
  Trials trials{{importance_real("a"), importance_real("b")}};
  trials.add(500, [](const Point& p) { return p[0]; });
  trials.values[3] = 1e300;
  trials.values[4] = kNothing;
  trials.values[5] = -std::numeric_limits<double>::infinity();
  const auto found = trials.importance();
  EXPECT_GT(found[0].alone, 0.6);
  EXPECT_LT(found[1].alone, 0.2);
}

TEST(Importance, WithoutDifferencesIsNothing) {
  Trials trials{{importance_real("a"), importance_choice("b", 2)}};
  for (const int count : {0, 1, 30}) {
    trials.add(count, [](const Point&) { return 0.1; });
    for (const Importance& one : trials.importance()) EXPECT_EQ(one.total, 0);
  }
  EXPECT_TRUE(std::isnan(Forest::fit(trials.dimensions, {}, {}).marginal({0.5, 0})));
}

TEST(Importance, MarginalsAverageOverTheOthers) {
  Trials trials{{importance_real("a", 0, 10), importance_choice("b", 2)}};
  trials.add(1500, [](const Point& p) { return p[0] + 4 * p[1]; });
  const Forest forest = Forest::fit(trials.dimensions, trials.points, trials.values);
  EXPECT_NEAR(forest.marginal({5, kNothing}), 7, 0.4);
  EXPECT_NEAR(forest.marginal({kNothing, 1}), 9, 0.4);
  EXPECT_NEAR(forest.marginal({2, 1}), 6, 0.4);
  EXPECT_NEAR(forest.marginal({kNothing, kNothing}), 7, 0.4);
}

TEST(Importance, RefusesUnequalSizes) {
  EXPECT_THROW(Forest::fit({importance_real("a")}, {{0.5}}, {}), ConfigError);
  EXPECT_THROW(Forest::fit({importance_real("a")}, {{0.5, 1}}, {1}), ConfigError);
}

TEST(Importance, PlacesAndValuesAreInverse) {
  const Domain integers{.kind = Domain::Kind::integer, .lower = 1, .upper = 4};
  EXPECT_DOUBLE_EQ(place_in(integers, 1), 0.125);
  EXPECT_DOUBLE_EQ(place_in(integers, 4), 0.875);
  const Domain normal{.kind = Domain::Kind::normal, .mean = 3, .sd = 2};
  EXPECT_NEAR(place_in(normal, 3), 0.5, 1e-12);
  EXPECT_NEAR(value_at(normal, place_in(normal, 5.5)), 5.5, 1e-6);
  const Domain logs{.kind = Domain::Kind::real, .lower = 1e-4, .upper = 1, .log = true};
  EXPECT_NEAR(place_in(logs, 1e-2), 0.5, 1e-12);
  EXPECT_NEAR(value_at(logs, 0.5), 1e-2, 1e-12);
}

}  // namespace
}  // namespace lockstep::tune
