#include "tune/kernel_mixture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "test_functions.h"
#include "tune/domain.h"

namespace lockstep::tune {
namespace {

/// The mean density over places in [0, 1] of one dimension.
double mean_density(const KernelMixture& mixture, const Domain& domain) {
  double sum = 0;
  constexpr int kPlaces = 3000;
  for (int n = 0; n < kPlaces; ++n) {
    sum += std::exp(mixture.log_density({from_unit(domain, (n + 0.5) / kPlaces)})) / kPlaces;
  }
  return sum;
}

TEST(KernelMixtureTest, DensitiesHaveTheMassOne) {
  const std::pair<Value, double> spaces[] = {
      {uniform_domain(-2, 3), 0.01},
      {{{"$domain", {{"kind", "choice"}, {"values", {1, 2, 3}}}}}, 1e-6},
      {{{"$domain", {{"kind", "randint"}, {"lower", 0}, {"upper", 10}}}}, 0.06},
      {{{"$domain", {{"kind", "quniform"}, {"lower", 0}, {"upper", 1}, {"q", 0.5}}}}, 0.25},
      {{{"$domain", {{"kind", "randn"}}}}, 0.01},
  };
  for (const auto& [domain, tolerance] : spaces) {
    const Space space = Space::parse({{"x", domain}});
    KernelMixture mixture(space, {0}, 100, 1);
    EXPECT_NEAR(mean_density(mixture, space.dimensions()[0].domain), 1, 1e-9);
    RandomNumbers random(1, 1);
    for (TrialNumber trial = 0; trial < 60; ++trial) {
      mixture.insert(trial, random_point(space, {}, random));
      if (trial % 3 == 2) mixture.erase(trial - 1);
      if (trial % 10 == 0) {
        EXPECT_NEAR(mean_density(mixture, space.dimensions()[0].domain), 1, tolerance) << domain << trial;
      }
    }
  }
}

TEST(KernelMixtureTest, DrawsFollowTheDensity) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  const Domain& domain = space.dimensions()[0].domain;
  KernelMixture mixture(space, {0}, 100, 1);
  for (TrialNumber trial = 0; trial < 8; ++trial) mixture.insert(trial, {0.1 + 0.02 * static_cast<double>(trial)});
  RandomNumbers random(1, 1);
  constexpr int kDraws = 20'000;
  int below = 0;
  for (int n = 0; n < kDraws; ++n) {
    Point point(1);
    mixture.draw(point, {}, random);
    ASSERT_TRUE(contains(domain, point[0]));
    below += point[0] < 0.2 ? 1 : 0;
  }
  double expected = 0;
  for (int n = 0; n < 200; ++n) expected += std::exp(mixture.log_density({(n + 0.5) / 1000})) / 1000;
  EXPECT_NEAR(static_cast<double>(below) / kDraws, expected, 0.015);
  Point point(1);
  mixture.draw(point, {0.75}, random);
  EXPECT_EQ(point[0], 0.75);
}

/// A mixture that grew and shrank is the same as one that was made so.
TEST(KernelMixtureTest, ErasingLeavesNoTrace) {
  const Space space = Space::parse(hartmann().space);
  const std::vector<int> all{0, 1, 2, 3, 4, 5};
  KernelMixture grown(space, all, 50, 1), made(space, all, 50, 1);
  RandomNumbers random(2, 2);
  for (TrialNumber trial = 0; trial < 200; ++trial) {
    const Point point = random_point(space, {}, random);
    grown.insert(trial, point);
    const bool stays = trial >= 140 && trial % 2 == 0;
    if (stays) made.insert(trial, point);
    if (!stays) grown.erase(trial);
    grown.erase(trial + 1000);
  }
  for (int n = 0; n < 20; ++n) {
    const Point point = random_point(space, {}, random);
    EXPECT_NEAR(grown.log_density(point), made.log_density(point), 1e-4);
  }
}

TEST(KernelMixtureTest, BeyondItsCapacityTheOldestIsLeftOut) {
  const Space space = Space::parse({{"x", uniform_domain(0, 1)}});
  KernelMixture small(space, {0}, 3, 1), same(space, {0}, 3, 1);
  for (TrialNumber trial = 0; trial < 6; ++trial) small.insert(trial, {0.1 * static_cast<double>(trial)});
  for (TrialNumber trial = 3; trial < 6; ++trial) same.insert(trial, {0.1 * static_cast<double>(trial)});
  for (const double x : {0.0, 0.2, 0.45, 0.9}) EXPECT_NEAR(small.log_density({x}), same.log_density({x}), 1e-5);
}

TEST(KernelMixtureTest, AMillionChoicesFit) {
  Value values = Value::array();
  for (int n = 0; n < 1'000'000; ++n) values.push_back(n);
  const Space space = Space::parse({{"x", {{"$domain", {{"kind", "choice"}, {"values", values}}}}}});
  KernelMixture mixture(space, {0}, 10, 1);
  mixture.insert(0, {999'999});
  EXPECT_GT(mixture.log_density({999'999}), mixture.log_density({999'998}));
}

}  // namespace
}  // namespace lockstep::tune
