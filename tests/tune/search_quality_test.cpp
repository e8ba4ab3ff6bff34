// Searchers find what random points do not. Bounds are loose: benchmarks/tune_quality.py measures exactly.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "test_functions.h"
#include "tune/sobol.h"

namespace lockstep::tune {
namespace {

/// The median of the best values of some searches.
double median_best(const Value& description, const TestFunction& function, int trials = 100, int seeds = 9) {
  std::vector<double> bests;
  const Space space = Space::parse(function.space);
  for (int seed = 0; seed < seeds; ++seed) {
    const auto searcher = make_searcher(description, space, static_cast<std::uint64_t>(seed), 1);
    double best = INFINITY;
    for (TrialNumber trial = 0; trial < trials; ++trial) {
      const double value = function.value(space.config(searcher->ask(trial, {}).point));
      searcher->tell(trial, {value});
      best = std::min(best, value);
    }
    bests.push_back(best);
  }
  std::sort(bests.begin(), bests.end());
  return bests[bests.size() / 2];
}

TEST(SearchQualityTest, Tpe) {
  const Value tpe{{"kind", "tpe"}};
  EXPECT_LT(median_best(tpe, branin()), 0.46);       // random: 0.79
  EXPECT_LT(median_best(tpe, hartmann()), -3.0);     // random: -2.0
  EXPECT_LT(median_best(tpe, rosenbrock()), 200);    // random: 4,500
  EXPECT_LT(median_best(tpe, conditional()), 0.08);  // random: 0.41
}

TEST(SearchQualityTest, Cmaes) {
  const Value cmaes{{"kind", "cmaes"}};
  EXPECT_LT(median_best(cmaes, branin()), 0.46);
  EXPECT_LT(median_best(cmaes, hartmann()), -2.8);
  EXPECT_LT(median_best(cmaes, rosenbrock()), 400);
  EXPECT_LT(median_best(cmaes, rosenbrock(), 2000, 5), 1);
}

TEST(SearchQualityTest, Gp) {
  const Value gp{{"kind", "gp"}};
  EXPECT_LT(median_best(gp, branin(), 50, 3), 0.41);
  EXPECT_LT(median_best(gp, hartmann(), 60, 3), -3.0);
  EXPECT_LT(median_best(gp, conditional(), 60, 3), 0.05);
}

/// Values at a low budget mislead about one half of the space; those at a high one do not.
TEST(SearchQualityTest, BohbTrustsTheHighestBudget) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  const auto searcher = make_searcher({{"kind", "bohb"}, {"eta", 3}}, space, 1, 1);
  int right = 0;
  for (TrialNumber trial = 0; trial < 120; ++trial) {
    const double x = searcher->ask(trial, {}).point[0];
    searcher->observe(trial, 1, std::abs(x - 0.9));
    if (trial % 3 == 0) {
      searcher->observe(trial, 3, std::abs(x - 0.1));
      searcher->observe(trial, 9, std::abs(x - 0.1));
    }
    searcher->tell(trial, {0});
    if (trial >= 80 && std::abs(x - 0.1) < 0.15) ++right;
  }
  EXPECT_GT(right, 25);
}

TEST(SearchQualityTest, BohbUsesLowBudgetsWhileThereIsNothingElse) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  const auto searcher = make_searcher({{"kind", "bohb"}}, space, 1, 1);
  int right = 0;
  for (TrialNumber trial = 0; trial < 100; ++trial) {
    const double x = searcher->ask(trial, {}).point[0];
    searcher->observe(trial, 1, std::abs(x - 0.9));
    searcher->tell(trial, {0});
    if (trial >= 60 && std::abs(x - 0.9) < 0.15) ++right;
  }
  EXPECT_GT(right, 25);
}

/// ZDT1: the front is y = 1 - sqrt(x), where all other parameters are 0.
TEST(SearchQualityTest, Nsga2ComesNearTheFront) {
  const Space space = Space::parse(uniform_space(4, 0, 1));
  const auto distance_of = [&](const char* kind) {
    const Value description =
        kind == std::string("nsga2") ? Value{{"kind", kind}, {"population", 40}} : Value{{"kind", kind}};
    const auto searcher = make_searcher(description, space, 1, 2);
    std::vector<std::pair<double, double>> all;
    for (TrialNumber trial = 0; trial < 4000; ++trial) {
      const Point point = searcher->ask(trial, {}).point;
      const double g = 1 + 3 * (point[1] + point[2] + point[3]);
      const double second = g * (1 - std::sqrt(point[0] / g));
      searcher->tell(trial, {point[0], second});
      all.emplace_back(point[0], second);
    }
    // The mean distance to the nearest result, over points of the front.
    double sum = 0;
    for (int n = 0; n <= 20; ++n) {
      const double x = n / 20.0, y = 1 - std::sqrt(x);
      double nearest = INFINITY;
      for (const auto& [first, second] : all) nearest = std::min(nearest, std::hypot(first - x, second - y));
      sum += nearest / 21;
    }
    return sum;
  };
  EXPECT_LT(distance_of("nsga2"), 0.03);
  EXPECT_GT(distance_of("random"), 0.15);
}

TEST(SearchQualityTest, Nsga2LeavesOutWhatFailed) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  const auto searcher = make_searcher({{"kind", "nsga2"}, {"population", 10}}, space, 1, 2);
  int failed = 0;
  for (TrialNumber trial = 0; trial < 200; ++trial) {
    const double x = searcher->ask(trial, {}).point[0];
    const bool fails = x > 0.3;
    if (trial >= 100) failed += fails;
    searcher->tell(trial, fails ? std::vector<double>{} : std::vector<double>{x, 1 - x});
  }
  EXPECT_LT(failed, 60);  // mutations go anywhere
}

TEST(SobolTest, PowersOfTwoAreSpreadEvenly) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const SobolSequence sequence(20, seed);
    for (const int count : {2, 16, 256}) {
      for (int d = 0; d < 20; ++d) {
        std::vector<int> hits(static_cast<std::size_t>(count), 0);
        for (int n = 0; n < count; ++n) {
          const double place = sequence.at(static_cast<std::uint64_t>(n), d);
          ASSERT_TRUE(place > 0 && place < 1);
          ++hits[static_cast<std::size_t>(place * count)];
        }
        EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 1) << d;
      }
    }
  }
}

TEST(SobolTest, FirstTwoDimensionsFillEveryRectangle) {
  const SobolSequence sequence(2, 5);
  for (int bits = 0; bits <= 8; ++bits) {
    const int across = 1 << bits, up = 256 / across;
    std::vector<int> hits(256, 0);
    for (std::uint64_t n = 0; n < 256; ++n) {
      const int column = static_cast<int>(sequence.at(n, 0) * across), row = static_cast<int>(sequence.at(n, 1) * up);
      ++hits[static_cast<std::size_t>(column * up + row)];
    }
    EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 1) << across;
  }
}

TEST(SobolTest, SeedsDiffer) {
  EXPECT_NE(SobolSequence(1, 1).at(0, 0), SobolSequence(1, 2).at(0, 0));
  EXPECT_EQ(SobolSequence(3, 1).at(9, 2), SobolSequence(3, 1).at(9, 2));
}

}  // namespace
}  // namespace lockstep::tune
