#include <chrono>

#include "simulation.h"

namespace lockstep::tune {
namespace {

TEST(AshaTest, LetsTheBestOfEachRungGoOn) {
  Simulation simulation{
      .description = {{"kind", "asha"}, {"max_t", 64}, {"reduction_factor", 4}}, .trials = 20'000, .slots = 16};
  simulation.run();
  EXPECT_EQ(simulation.reached(1), 20'000);
  // A trial is compared with those before it, so the share is 1/4 only on average, and larger at a rung with few.
  EXPECT_NEAR(simulation.reached(2), 5'000, 250);
  EXPECT_NEAR(simulation.reached(5), 1'250, 125);
  EXPECT_NEAR(simulation.reached(17), 312, 60);
  EXPECT_EQ(simulation.reached(64), simulation.reached(17));
  EXPECT_EQ(simulation.reached(65), 0);

  // The best ones are among those that came to the end.
  std::vector<std::pair<double, TrialNumber>> ranked;
  for (TrialNumber trial = 0; trial < simulation.trials; ++trial)
    ranked.emplace_back(simulation.value(trial, 1, {}), trial);
  std::ranges::sort(ranked);
  for (int at = 0; at < 100; ++at)
    EXPECT_EQ(simulation.all[static_cast<std::size_t>(ranked[static_cast<std::size_t>(at)].second)].furthest, 64);
}

TEST(AshaTest, ComparesWithTheQuantileOfThoseBefore) {
  const auto scheduler = make_scheduler({{"kind", "asha"}, {"reduction_factor", 4}}, 1);
  auto goes_on = [&, trial = 0](double value) mutable {
    return scheduler->on_result(trial++, 1, value, false).kind == Decision::Kind::go_on;
  };
  EXPECT_TRUE(goes_on(10));     // the first one
  EXPECT_FALSE(goes_on(11));    // {10}: the quantile is 10
  EXPECT_TRUE(goes_on(10.25));  // {10, 11}: 10.25
  EXPECT_FALSE(goes_on(10.2));  // {10, 10.25, 11}: 10.125
  EXPECT_TRUE(goes_on(10.14));  // {10, 10.2, 10.25, 11}: 10.15
  EXPECT_FALSE(goes_on(std::nan("")));
  EXPECT_TRUE(goes_on(1));
}

TEST(AshaTest, StopsTrialsWithoutANumberOnceThereIsOne) {
  const auto scheduler = make_scheduler({{"kind", "asha"}}, 1);
  EXPECT_EQ(scheduler->on_result(0, 1, std::nan(""), false).kind, Decision::Kind::go_on);
  EXPECT_EQ(scheduler->on_result(1, 1, std::nan(""), false).kind, Decision::Kind::stop);
  EXPECT_EQ(scheduler->on_result(2, 1, 5, false).kind, Decision::Kind::go_on);
}

TEST(AshaTest, DecidesOncePerRung) {
  const auto scheduler = make_scheduler({{"kind", "asha"}, {"grace_period", 2}, {"max_t", 100}}, 1);
  EXPECT_EQ(scheduler->on_result(0, 2, 1, false).kind, Decision::Kind::go_on);
  EXPECT_EQ(scheduler->on_result(1, 1, 9, false).kind, Decision::Kind::go_on);  // below the grace period
  EXPECT_EQ(scheduler->on_result(1, 2, 0, false).kind, Decision::Kind::go_on);
  EXPECT_EQ(scheduler->on_result(1, 2, 9, false).kind, Decision::Kind::go_on);  // tried again from a checkpoint
  EXPECT_EQ(scheduler->on_result(1, 7, 9, false).kind, Decision::Kind::go_on);
  const Decision decision = scheduler->on_result(2, 3, 9, false);
  EXPECT_EQ(decision.kind, Decision::Kind::stop);
  EXPECT_EQ(decision.why, "it is not among the best at rung 2.0");
}

TEST(AshaTest, MayLetTheLastTrialsGoOn) {
  const auto stops = make_scheduler({{"kind", "asha"}, {"max_t", 10}}, 1);
  EXPECT_EQ(stops->on_result(0, 10, 1, false).why, "it has reached max_t");
  const auto goes_on = make_scheduler({{"kind", "asha"}, {"max_t", 10}, {"stop_last_trials", false}}, 1);
  EXPECT_EQ(goes_on->on_result(0, 10, 1, false).kind, Decision::Kind::go_on);
}

TEST(AshaTest, BracketsDifferInTheirFirstRung) {
  // Every trial after the first is worse than all before: it stops at the first rung of its bracket.
  Simulation simulation{.description = {{"kind", "asha"}, {"max_t", 64}, {"brackets", 3}}, .trials = 3'000, .slots = 1};
  simulation.value = [](TrialNumber trial, double, const Value&) { return static_cast<double>(trial); };
  simulation.run();
  const int later = simulation.reached(2), latest = simulation.reached(5);
  // Weights 1, 1/e, 1/e^2.
  EXPECT_NEAR((3'000 - later) / 3'000.0, 0.665, 0.04);
  EXPECT_NEAR((later - latest) / 3'000.0, 0.245, 0.04);
  EXPECT_NEAR(latest / 3'000.0, 0.09, 0.03);
}

TEST(AshaTest, DecidesWithinMicroseconds) {
  const auto scheduler = make_scheduler({{"kind", "asha"}, {"max_t", 100}}, 1);
  RandomNumbers random(1, 1);
  constexpr int kTrials = 200'000;
  const auto begin = std::chrono::steady_clock::now();
  int stopped = 0;
  for (int trial = 0; trial < kTrials; ++trial)
    stopped += scheduler->on_result(trial, 1, random.uniform(), false).kind == Decision::Kind::stop ? 1 : 0;
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(stopped, kTrials / 2);
  RecordProperty("microseconds", std::to_string(took.count() / kTrials));
  EXPECT_LT(took.count() / kTrials, 10);
}

}  // namespace
}  // namespace lockstep::tune
