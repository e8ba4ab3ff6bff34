#include <gtest/gtest.h>

#include "simulation.h"

namespace lockstep::tune {
namespace {

using Kind = Decision::Kind;

TEST(HyperbandTest, PromotesAsThePaperSays) {
  // One band of max_t 81 and factor 3: 81 trials from 1, 34 from 3, 15 from 9, 8 from 27, 5 from 81.
  for (const char* kind : {"hyperband", "hyperband_bohb"}) {
    Simulation simulation{.description = {{"kind", kind}}, .trials = 81 + 34 + 15 + 8 + 5, .slots = 10};
    simulation.run();
    const auto reached_by = [&](int from, int to, double time) {
      return std::count_if(simulation.all.begin() + from, simulation.all.begin() + to,
                           [&](const auto& trial) { return trial.furthest >= time; });
    };
    EXPECT_EQ(reached_by(0, 81, 1), 81);
    EXPECT_EQ(reached_by(0, 81, 2), 27);
    EXPECT_EQ(reached_by(0, 81, 4), 9);
    EXPECT_EQ(reached_by(0, 81, 10), 3);
    EXPECT_EQ(reached_by(0, 81, 28), 1);
    EXPECT_EQ(reached_by(0, 81, 81), 1);
    EXPECT_EQ(reached_by(81, 115, 3), 34);
    EXPECT_EQ(reached_by(81, 115, 4), 11);
    EXPECT_EQ(reached_by(115, 130, 10), 5);
    EXPECT_EQ(reached_by(130, 138, 28), 2);
    EXPECT_EQ(reached_by(138, 143, 81), 5);
    EXPECT_EQ(simulation.reached(82), 0);
    EXPECT_EQ(simulation.most_running, 10);

    // The best of the largest bracket is the one that came to its end.
    TrialNumber best = 0;
    for (TrialNumber trial = 1; trial < 81; ++trial)
      if (simulation.value(trial, 1, {}) < simulation.value(best, 1, {})) best = trial;
    EXPECT_EQ(simulation.all[static_cast<std::size_t>(best)].furthest, 81);
  }
}

TEST(HyperbandTest, ThousandsOfTrialsThatFailEndAll) {
  Simulation simulation{
      .description = {{"kind", "hyperband"}}, .trials = 5'000, .slots = 64, .fails = 0.02, .retries = 1};
  simulation.run();
  EXPECT_EQ(simulation.standstills, 0);
  EXPECT_EQ(simulation.count(""), 0);
  EXPECT_GT(simulation.count("failed"), 0);
  EXPECT_GT(simulation.reached(81), 100);
}

TEST(HyperbandTest, TheLastToReachARungIsToldAtOnce) {
  const auto scheduler = make_scheduler({{"kind", "hyperband"}, {"max_t", 3}}, 1);  // 3 trials from 1, 2 from 3
  for (TrialNumber trial = 0; trial < 3; ++trial) scheduler->on_added(trial, {});
  EXPECT_EQ(scheduler->on_result(0, 1, 5, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->on_result(1, 1, 7, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->choose({}, {0, 1}), std::nullopt);
  EXPECT_EQ(scheduler->on_result(2, 1, 3, true).kind, Kind::go_on);
  EXPECT_EQ(scheduler->take_dropped(), (std::vector<TrialNumber>{0, 1}));
  EXPECT_TRUE(scheduler->take_dropped().empty());
  EXPECT_EQ(scheduler->on_result(2, 3, 3, true).why, "it has reached max_t");
}

TEST(HyperbandTest, AFailureCompletesARung) {
  const auto scheduler = make_scheduler({{"kind", "hyperband"}, {"max_t", 3}}, 1);
  for (TrialNumber trial = 0; trial < 3; ++trial) scheduler->on_added(trial, {});
  EXPECT_EQ(scheduler->on_result(0, 1, 5, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->on_result(1, 1, std::nan(""), true).kind, Kind::pause);
  scheduler->on_ended(2, true);
  EXPECT_EQ(scheduler->take_dropped(), std::vector<TrialNumber>{1});
  EXPECT_EQ(scheduler->choose({}, {0}), 0);
}

TEST(HyperbandTest, ABracketThatIsNotFullGoesOnWhenNoTrialComes) {
  const auto scheduler = make_scheduler({{"kind", "hyperband"}}, 1);  // the first bracket holds 81
  for (TrialNumber trial = 0; trial < 4; ++trial) scheduler->on_added(trial, {});
  for (TrialNumber trial = 0; trial < 3; ++trial)
    EXPECT_EQ(scheduler->on_result(trial, 1, -static_cast<double>(trial), true).kind, Kind::pause);
  EXPECT_EQ(scheduler->choose({}, {0, 1, 2}), std::nullopt);  // trial 3 runs
  EXPECT_EQ(scheduler->on_result(3, 1, 9, true).kind, Kind::pause);
  EXPECT_EQ(scheduler->choose({}, {0, 1, 2, 3}), 2);
  EXPECT_EQ(scheduler->take_dropped(), (std::vector<TrialNumber>{1, 0, 3}));
}

TEST(HyperbandTest, ATrialThatFailsWhileItIsStoppedIsDropped) {
  const auto scheduler = make_scheduler({{"kind", "hyperband"}, {"max_t", 3}}, 1);
  for (TrialNumber trial = 0; trial < 3; ++trial) scheduler->on_added(trial, {});
  scheduler->on_result(0, 1, 5, true);
  scheduler->on_ended(1, true);
  EXPECT_EQ(scheduler->on_result(2, 1, 6, true).kind, Kind::stop);
  EXPECT_EQ(scheduler->choose({2}, {0}), 0);
  EXPECT_EQ(scheduler->take_dropped(), std::vector<TrialNumber>{2});
}

TEST(HyperbandTest, BohbBeginsABracketWhenTheOneBeforeHasEnded) {
  const auto begins = [](const char* kind) {
    Simulation simulation{.description = {{"kind", kind}, {"max_t", 9}}, .trials = 9 + 5 + 3, .slots = 4};
    simulation.run();
    EXPECT_EQ(simulation.standstills, 0);
    std::size_t last_of_first = 0, first_of_second = 0;
    for (std::size_t at = 0; at < simulation.events.size(); ++at) {
      const std::string& event = simulation.events[at];
      if (event.starts_with("start 9 ")) first_of_second = at;
      for (int trial = 0; trial < 9; ++trial)
        if (event == "stopped " + std::to_string(trial)) last_of_first = at;
    }
    return first_of_second > last_of_first;
  };
  EXPECT_TRUE(begins("hyperband_bohb"));
  EXPECT_FALSE(begins("hyperband"));
}

}  // namespace
}  // namespace lockstep::tune
