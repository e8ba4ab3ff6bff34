#include "tune/searcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>
#include <set>

#include "test_functions.h"
#include "tune/domain.h"

namespace lockstep::tune {
namespace {

using ::testing::HasSubstr;
using AskedKind = PointSearcher::Asked::Kind;

constexpr double kOpen = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<PointSearcher> searcher_of(const Value& description, const Space& space, std::uint64_t seed = 1,
                                           int objectives = 1) {
  return make_searcher(description, space, seed, objectives);
}

/// A space with every kind of domain, conditions and a grid.
Space mixed_space() {
  return Space::parse(Value::parse(R"({
    "grid": {"$domain": {"kind": "grid_search", "values": [1, 2]}},
    "model": {"$domain": {"kind": "choice", "values": [
      {"depth": {"$domain": {"kind": "randint", "lower": 1, "upper": 21}}},
      {"width": {"$domain": {"kind": "qlograndint", "lower": 4, "upper": 1024, "q": 4}},
       "bias": {"$domain": {"kind": "choice", "values": [true, false]}}}]}},
    "noise": {"$domain": {"kind": "qrandn", "mean": 1, "sd": 2, "q": 0.5}},
    "rate": {"$domain": {"kind": "loguniform", "lower": 1e-5, "upper": 1}},
    "share": {"$domain": {"kind": "quniform", "lower": 0, "upper": 1, "q": 0.05}},
    "shift": {"$domain": {"kind": "randn"}}})"));
}

void expect_valid(const Space& space, const Point& point) {
  ASSERT_EQ(point.size(), space.dimensions().size());
  for (std::size_t d = 0; d < point.size(); ++d) {
    if (space.is_active(point, static_cast<int>(d))) {
      EXPECT_TRUE(contains(space.dimensions()[d].domain, point[d])) << space.dimensions()[d].name << " " << point[d];
    } else {
      EXPECT_TRUE(std::isnan(point[d])) << space.dimensions()[d].name;
    }
  }
}

double some_value(const Point& point) {
  double sum = 0;
  for (const double value : point) sum += std::isnan(value) ? 0.5 : std::sin(value) + 0.01 * value;
  return sum;
}

std::vector<std::string> texts_of(const Space& space, const std::vector<Point>& points) {
  std::vector<std::string> texts;
  for (const Point& point : points) texts.push_back(space.config(point).dump());
  return texts;
}

/// What every searcher promises.
class AnySearcherTest : public testing::TestWithParam<const char*> {
 protected:
  Value description() const { return Value::parse(GetParam()); }

  /// Points of trials of which three run at once and end in another order; some fail.
  std::vector<Point> run(const Space& space, std::uint64_t seed, int trials = 60) {
    const auto searcher = searcher_of(description(), space, seed);
    std::vector<Point> points;
    for (TrialNumber trial = 0; trial < trials; ++trial) {
      Point fixed(space.dimensions().size(), kOpen);
      if (!fixed.empty() && space.dimensions()[0].grid) fixed[0] = static_cast<double>(trial % 2);
      const PointSearcher::Asked asked = searcher->ask(trial, fixed);
      if (asked.kind != AskedKind::point) {
        ADD_FAILURE() << "no point for trial " << trial;
        return points;
      }
      points.push_back(asked.point);
      searcher->observe(trial, 1, some_value(asked.point));
      if (trial % 3 != 2) continue;
      for (const TrialNumber ended : {trial - 1, trial, trial - 2}) {
        const double value = ended % 11 == 5 ? kOpen : some_value(points[static_cast<std::size_t>(ended)]);
        searcher->tell(ended, ended % 7 == 3 ? std::vector<double>{} : std::vector<double>{value});
      }
    }
    return points;
  }
};

TEST_P(AnySearcherTest, GivesValidPoints) {
  const Space space = mixed_space();
  for (const Point& point : run(space, 1)) expect_valid(space, point);
}

TEST_P(AnySearcherTest, RepeatsItsPoints) {
  const Space space = mixed_space();
  const auto texts = texts_of(space, run(space, 5));
  EXPECT_EQ(texts, texts_of(space, run(space, 5)));
  const auto others = texts_of(space, run(space, 6));
  if (description().at("kind") != "grid") {
    EXPECT_NE(texts, others);
  }
}

TEST_P(AnySearcherTest, KeepsWhatIsFixed) {
  const Space space = mixed_space();
  Point fixed(space.dimensions().size(), kOpen);
  const auto set = [&](const std::string& name, double value) {
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      if (space.dimensions()[d].name == name) fixed[d] = value;
    }
  };
  set("grid", 1);
  set("model", 0);
  set("rate", 0.01);
  const auto searcher = searcher_of(description(), space);
  for (TrialNumber trial = 0; trial < 40; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, fixed);
    ASSERT_EQ(asked.kind, AskedKind::point);
    expect_valid(space, asked.point);
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      if (std::isnan(fixed[d])) continue;
      EXPECT_EQ(asked.point[d], fixed[d]) << space.dimensions()[d].name;
    }
    searcher->tell(trial, {some_value(asked.point)});
  }
}

TEST_P(AnySearcherTest, WholePointsMayBeFixed) {
  const Space space = Space::parse(rosenbrock().space);
  const auto searcher = searcher_of(description(), space);
  for (TrialNumber trial = 0; trial < 30; ++trial) {
    const Point fixed = trial < 15 ? Point{1, 2, 3, 4, static_cast<double>(trial) / 2} : Point{};
    const PointSearcher::Asked asked = searcher->ask(trial, fixed);
    ASSERT_EQ(asked.kind, AskedKind::point);
    if (!fixed.empty()) {
      EXPECT_EQ(asked.point, fixed);
    }
    searcher->tell(trial, {some_value(asked.point)});
  }
}

TEST_P(AnySearcherTest, GoesOnIfEverythingFails) {
  const Space space = mixed_space();
  const auto searcher = searcher_of(description(), space);
  const Point fixed{0};
  for (TrialNumber trial = 0; trial < 80; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, fixed);
    ASSERT_EQ(asked.kind, AskedKind::point);
    expect_valid(space, asked.point);
    const double values[] = {kOpen, INFINITY, -INFINITY};
    searcher->tell(trial, trial % 4 == 3 ? std::vector<double>{} : std::vector<double>{values[trial % 4]});
  }
}

TEST_P(AnySearcherTest, EqualValuesAreNoProblem) {
  const Space space = mixed_space();
  const auto searcher = searcher_of(description(), space);
  for (TrialNumber trial = 0; trial < 60; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, {1});
    ASSERT_EQ(asked.kind, AskedKind::point);
    expect_valid(space, asked.point);
    searcher->tell(trial, {3});
  }
}

TEST_P(AnySearcherTest, IgnoresTrialsThatItDoesNotKnow) {
  const Space space = mixed_space();
  const auto searcher = searcher_of(description(), space), undisturbed = searcher_of(description(), space);
  for (TrialNumber trial = 0; trial < 40; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, {1});
    EXPECT_EQ(space.config(asked.point), space.config(undisturbed->ask(trial, {1}).point));
    const std::vector<double> values{some_value(asked.point)};
    undisturbed->tell(trial, values);
    searcher->tell(trial, values);
    searcher->tell(trial, {-1000});
    searcher->tell(trial + 1000, {-1000});
  }
}

TEST_P(AnySearcherTest, NeedsNoDimensions) {
  const Space space = Space::parse({{"constant", 1}});
  const auto searcher = searcher_of(description(), space);
  for (TrialNumber trial = 0; trial < 30; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, {});
    if (asked.kind == AskedKind::exhausted) break;  // a grid of one point
    EXPECT_TRUE(asked.point.empty());
    searcher->tell(trial, {1});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnySearcherTest,
                         testing::Values(R"({"kind": "random"})", R"({"kind": "grid"})", R"({"kind": "sobol"})",
                                         R"({"kind": "tpe"})", R"({"kind": "tpe", "n_startup": 1, "n_candidates": 3})",
                                         R"({"kind": "cmaes"})", R"({"kind": "gp"})",
                                         R"({"kind": "nsga2", "population": 10})", R"({"kind": "bohb"})",
                                         R"({"kind": "limit", "max_concurrent": 3, "searcher": {"kind": "tpe"}})"));

TEST(SearcherTest, ParallelTrialsDiffer) {
  const Space space = Space::parse(branin().space);
  for (const char* kind : {"tpe", "gp", "cmaes", "bohb"}) {
    const auto searcher = searcher_of({{"kind", kind}}, space);
    TrialNumber trial = 0;
    for (; trial < 15; ++trial) {
      const Point point = searcher->ask(trial, {}).point;
      searcher->tell(trial, {branin().value(space.config(point))});
    }
    // None of these ends. Each is away from the ones before.
    std::vector<Point> pending;
    for (; trial < 25; ++trial) {
      const Point point = searcher->ask(trial, {}).point;
      for (const Point& other : pending) {
        EXPECT_GT(std::abs(point[0] - other[0]) + std::abs(point[1] - other[1]), 1e-3) << kind;
      }
      pending.push_back(point);
    }
  }
}

/// Half of the points near the best are taken by unfinished trials: a searcher that does not see them stays there.
TEST(SearcherTest, UnfinishedTrialsRepelTpe) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  const auto mean_distance = [&](int pending) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto searcher = searcher_of({{"kind", "tpe"}}, space, seed);
      TrialNumber trial = 0;
      for (; trial < 20; ++trial) {
        const double x = static_cast<double>(trial) / 19;
        searcher->ask(trial, {x});
        searcher->tell(trial, {std::abs(x - 0.5)});
      }
      for (int n = 0; n < pending; ++n) searcher->ask(trial++, {0.47 + 0.06 * n / 60});
      sum += std::abs(searcher->ask(trial, {}).point[0] - 0.5);
    }
    return sum / 50;
  };
  EXPECT_GT(mean_distance(60), 2 * mean_distance(0));
}

TEST(SearcherTest, GridEndsAfterAllCombinations) {
  const Space space = Space::parse(Value::parse(R"({
    "a": {"$domain": {"kind": "choice", "values": [1, {"b": {"$domain": {"kind": "randint", "lower": 0, "upper": 3}}}]}},
    "c": {"$domain": {"kind": "loguniform", "lower": 0.01, "upper": 1}}})"));
  const auto searcher = searcher_of({{"kind", "grid"}, {"steps", 3}}, space);
  std::vector<std::string> texts;
  TrialNumber trial = 0;
  for (;; ++trial) {
    const PointSearcher::Asked asked = searcher->ask(trial, {});
    if (asked.kind == AskedKind::exhausted) break;
    ASSERT_LT(trial, 100);
    const Value config = space.config(asked.point);
    texts.push_back(config.at("a").dump() + " " + std::to_string(config.at("c").get<double>()));
  }
  ASSERT_EQ(texts.size(), (1U + 3U) * 3U);
  EXPECT_EQ(texts[0], "1 0.010000");
  EXPECT_EQ(texts[1], "1 0.100000");
  EXPECT_EQ(texts[2], "1 1.000000");
  EXPECT_EQ(texts[3], R"({"b":0} 0.010000)");
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
  EXPECT_EQ(searcher->ask(trial, {}).kind, AskedKind::exhausted);
  // What is fixed otherwise has its own way.
  EXPECT_EQ(searcher->ask(trial, {0}).kind, AskedKind::point);
}

TEST(SearcherTest, RefusesWrongDescriptions) {
  const Space space = Space::parse(branin().space);
  const auto error = [&](const char* text, int objectives = 1) -> std::string {
    try {
      searcher_of(Value::parse(text), space, 1, objectives);
    } catch (const ConfigError& caught) {
      return caught.what();
    }
    return "none";
  };
  EXPECT_THAT(error(R"({"kind": "hyperopt"})"),
              HasSubstr(R"(there is no searcher "hyperopt"; there are random, grid)"));
  EXPECT_THAT(error(R"({})"), HasSubstr("a dict with a kind"));
  EXPECT_THAT(error(R"("tpe")"), HasSubstr("a dict with a kind"));
  EXPECT_THAT(error(R"({"kind": "tpe", "candidates": 3})"), HasSubstr(R"(tpe has no option "candidates"; it has n_)"));
  EXPECT_THAT(error(R"({"kind": "random", "seed": 3})"), HasSubstr(R"(random has no option "seed")"));
  EXPECT_THAT(error(R"({"kind": "tpe", "n_startup": 0})"), HasSubstr("tpe: n_startup is 0; it must be a whole number"));
  EXPECT_THAT(error(R"({"kind": "tpe", "n_startup": 2.5})"), HasSubstr("n_startup is 2.5"));
  EXPECT_THAT(error(R"({"kind": "tpe", "prior_weight": "a"})"),
              HasSubstr("prior_weight is \"a\"; it must be a number"));
  EXPECT_THAT(error(R"({"kind": "cmaes", "population": 3})"), HasSubstr("population is 3"));
  EXPECT_THAT(error(R"({"kind": "gp", "history": 1})"), HasSubstr("history is 1"));
  EXPECT_THAT(error(R"({"kind": "nsga2", "crossover": 1.5})"), HasSubstr("crossover is 1.5"));
  EXPECT_THAT(error(R"({"kind": "bohb", "eta": 1})"), HasSubstr("eta is 1"));
  EXPECT_THAT(error(R"({"kind": "grid", "steps": 0})"), HasSubstr("steps is 0"));
  EXPECT_THAT(error(R"({"kind": "limit", "searcher": {"kind": "random"}})"), HasSubstr("max_concurrent is missing"));
  EXPECT_THAT(error(R"({"kind": "limit", "max_concurrent": 2})"), HasSubstr("searcher is missing"));
  EXPECT_THAT(error(R"({"kind": "limit", "max_concurrent": 2, "batch": 1, "searcher": {"kind": "random"}})"),
              HasSubstr("batch is 1; it must be true or false"));
  EXPECT_THAT(error(R"({"kind": "repeat", "repeat": 2, "searcher": {"kind": "tpe", "x": 1}})"),
              HasSubstr(R"(tpe has no option "x")"));
  EXPECT_THAT(error(R"({"kind": "tpe"})", 2), HasSubstr("tpe searches for one metric, not 2; use nsga2"));
  EXPECT_THAT(error(R"({"kind": "repeat", "repeat": 2, "searcher": {"kind": "gp"}})", 2), HasSubstr("gp searches for"));
  EXPECT_EQ(error(R"({"kind": "tpe", "n_startup": null})"), "none");
  Value wide = Value::object();
  for (int n = 0; n < 1001; ++n) wide["x" + std::to_string(n)] = uniform_domain(0, 1);
  EXPECT_THROW(searcher_of({{"kind", "sobol"}}, Space::parse(wide)), ConfigError);
}

}  // namespace
}  // namespace lockstep::tune
