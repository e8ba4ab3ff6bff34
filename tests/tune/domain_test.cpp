#include "tune/domain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace lockstep::tune {
namespace {

Domain domain_of(const char* text) {
  return Space::parse({{"x", {{"$domain", Value::parse(text)}}}}).dimensions().at(0).domain;
}

std::vector<double> samples_of(const Domain& domain, int count = 20'000) {
  std::vector<double> samples;
  RandomNumbers random(3, 4);
  for (int n = 0; n < count; ++n) {
    samples.push_back(from_unit(domain, random.uniform()));
    EXPECT_TRUE(contains(domain, samples.back())) << samples.back();
  }
  return samples;
}

/// The share of samples at each value.
std::map<double, double> shares_of(const Domain& domain) {
  std::map<double, double> shares;
  const std::vector<double> samples = samples_of(domain);
  for (const double sample : samples) shares[sample] += 1.0 / static_cast<double>(samples.size());
  return shares;
}

double share_below(const std::vector<double>& samples, double bound) {
  double count = 0;
  for (const double sample : samples) count += sample < bound ? 1 : 0;
  return count / static_cast<double>(samples.size());
}

void expect_even(const Domain& domain, const std::vector<double>& values) {
  const std::map<double, double> shares = shares_of(domain);
  ASSERT_EQ(shares.size(), values.size());
  EXPECT_EQ(count_values(domain), static_cast<std::int64_t>(values.size()));
  for (const double value : values) {
    const auto found = shares.lower_bound(value - 1e-9);
    ASSERT_NE(found, shares.end());
    EXPECT_NEAR(found->first, value, 1e-9);
    EXPECT_NEAR(found->second, 1.0 / static_cast<double>(values.size()), 0.02) << value;
  }
}

TEST(DomainTest, UniformReachesBothBounds) {
  const Domain domain = domain_of(R"({"kind": "uniform", "lower": -2, "upper": 6})");
  EXPECT_EQ(from_unit(domain, 0), -2);
  EXPECT_EQ(from_unit(domain, 1), 6);
  EXPECT_NEAR(share_below(samples_of(domain), 0), 0.25, 0.02);
  EXPECT_EQ(count_values(domain), 0);
  EXPECT_FALSE(contains(domain, 6.001));
  EXPECT_FALSE(contains(domain, std::nan("")));
}

TEST(DomainTest, LoguniformIsEvenInTheLogarithm) {
  const Domain domain = domain_of(R"({"kind": "loguniform", "lower": 1e-4, "upper": 1})");
  const std::vector<double> samples = samples_of(domain);
  EXPECT_NEAR(share_below(samples, 1e-3), 0.25, 0.02);
  EXPECT_NEAR(share_below(samples, 1e-2), 0.5, 0.02);
  EXPECT_GE(from_unit(domain, 0), 1e-4);
  EXPECT_LE(from_unit(domain, 1), 1);
}

TEST(DomainTest, RandintLeavesOutTheUpperBound) {
  expect_even(domain_of(R"({"kind": "randint", "lower": -1, "upper": 3})"), {-1, 0, 1, 2});
  EXPECT_FALSE(contains(domain_of(R"({"kind": "randint", "lower": -1, "upper": 3})"), 3));
}

TEST(DomainTest, QuantaAreMultiplesBetweenTheBounds) {
  expect_even(domain_of(R"({"kind": "qrandint", "lower": 1, "upper": 9, "q": 3})"), {3, 6, 9});
  expect_even(domain_of(R"({"kind": "qrandint", "lower": 2, "upper": 4})"), {2, 3, 4});
  expect_even(domain_of(R"({"kind": "quniform", "lower": 0, "upper": 1, "q": 0.25})"), {0, 0.25, 0.5, 0.75, 1});
  expect_even(domain_of(R"({"kind": "quniform", "lower": 0.1, "upper": 0.35, "q": 0.1})"), {0.1, 0.2, 0.3});
  EXPECT_FALSE(contains(domain_of(R"({"kind": "quniform", "lower": 0, "upper": 1, "q": 0.25})"), 0.3));
}

TEST(DomainTest, LogarithmicQuantaFavourSmallValues) {
  const std::map<double, double> plain = shares_of(domain_of(R"({"kind": "lograndint", "lower": 1, "upper": 9})"));
  ASSERT_EQ(plain.size(), 8U);
  EXPECT_EQ(plain.begin()->first, 1);
  EXPECT_EQ(plain.rbegin()->first, 8);
  // Value v has the interval from v - 1/2 to v + 1/2.
  const double total = std::log(8.5 / 0.5);
  for (const auto& [value, share] : plain) {
    EXPECT_NEAR(share, std::log((value + 0.5) / (value - 0.5)) / total, 0.015) << value;
  }
  for (const char* text : {R"({"kind": "qlograndint", "lower": 1, "upper": 100, "q": 10})",
                           R"({"kind": "qloguniform", "lower": 1, "upper": 100, "q": 10})"}) {
    const std::map<double, double> shares = shares_of(domain_of(text));
    ASSERT_EQ(shares.size(), 10U) << text;
    double before = 1;
    for (const auto& [value, share] : shares) {
      EXPECT_EQ(std::fmod(value, 10), 0);
      EXPECT_LT(share, before + 0.01);
      before = share;
    }
  }
}

TEST(DomainTest, NormalHasItsMeanAndDeviation) {
  const Domain domain = domain_of(R"({"kind": "randn", "mean": 5, "sd": 2})");
  const std::vector<double> samples = samples_of(domain);
  EXPECT_NEAR(share_below(samples, 5), 0.5, 0.02);
  EXPECT_NEAR(share_below(samples, 3), 0.1587, 0.015);
  EXPECT_NEAR(share_below(samples, 9), 0.9772, 0.01);
  EXPECT_TRUE(std::isfinite(from_unit(domain, 0)));
  EXPECT_TRUE(std::isfinite(from_unit(domain, 1)));
  const std::map<double, double> quantised = shares_of(domain_of(R"({"kind": "qrandn", "mean": 5, "sd": 2, "q": 2})"));
  for (const auto& [value, share] : quantised) EXPECT_EQ(std::fmod(value, 2), 0);
  EXPECT_NEAR(quantised.at(4), 0.3413, 0.015);  // from 3 to 5
}

TEST(DomainTest, ChoicesAreEven) {
  expect_even(domain_of(R"({"kind": "choice", "values": ["a", "b", "c"]})"), {0, 1, 2});
  expect_even(domain_of(R"({"kind": "choice", "values": [1]})"), {0});
}

TEST(DomainTest, ValuesComeBackFromTheirPlaces) {
  for (const char* text :
       {R"({"kind": "uniform", "lower": -2, "upper": 6})", R"({"kind": "uniform", "lower": 3, "upper": 3})",
        R"({"kind": "loguniform", "lower": 1e-4, "upper": 1})", R"({"kind": "randint", "lower": -1000, "upper": 1000})",
        R"({"kind": "lograndint", "lower": 1, "upper": 1000})",
        R"({"kind": "qlograndint", "lower": 8, "upper": 1024, "q": 8})",
        R"({"kind": "quniform", "lower": 0, "upper": 1, "q": 0.05})", R"({"kind": "randn", "mean": 5, "sd": 2})",
        R"({"kind": "qrandn", "mean": 5, "sd": 2, "q": 0.5})",
        R"({"kind": "choice", "values": [1, 2, 3, 4, 5, 6, 7]})"}) {
    const Domain domain = domain_of(text);
    for (const double value : samples_of(domain, 500)) {
      const double place = to_unit(domain, value);
      const auto [low, high] = unit_interval(domain, value);
      EXPECT_NEAR(from_unit(domain, place), value, 1e-6 * std::max(1.0, std::abs(value))) << text;
      EXPECT_LE(low, place) << text << " " << value;
      EXPECT_GE(high, place) << text << " " << value;
    }
  }
}

TEST(RandomNumbersTest, DependOnSeedAndTrialAlone) {
  RandomNumbers one(1, 2), same(1, 2), other_seed(2, 2), other_trial(1, 3);
  const std::uint64_t bits = one.bits();
  EXPECT_EQ(bits, same.bits());
  EXPECT_NE(bits, other_seed.bits());
  EXPECT_NE(bits, other_trial.bits());
}

TEST(RandomNumbersTest, NormalQuantileInvertsTheProbability) {
  for (const double p : {1e-12, 1e-5, 0.02, 0.3, 0.5, 0.7, 0.999, 1 - 1e-9}) {
    EXPECT_NEAR(normal_cdf(normal_quantile(p)) / p, 1, 1e-7) << p;
  }
  double sum = 0, squares = 0;
  RandomNumbers random(1, 1);
  for (int n = 0; n < 20'000; ++n) {
    const double number = random.normal();
    sum += number / 20'000;
    squares += number * number / 20'000;
  }
  EXPECT_NEAR(sum, 0, 0.03);
  EXPECT_NEAR(squares, 1, 0.05);
}

}  // namespace
}  // namespace lockstep::tune
