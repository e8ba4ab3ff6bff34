#include "tune/scheduler.h"

#include <lockstep/error.h>

#include "simulation.h"

namespace lockstep::tune {
namespace {

const Value kMutations = {{"lr", {{"$domain", {{"kind", "loguniform"}, {"lower", 1e-4}, {"upper", 1e-1}}}}}};

std::vector<Value> all_schedulers() {
  return {{{"kind", "fifo"}},
          {{"kind", "asha"}, {"max_t", 27}, {"reduction_factor", 3}, {"brackets", 2}},
          {{"kind", "hyperband"}, {"max_t", 27}},
          {{"kind", "hyperband_bohb"}, {"max_t", 27}},
          {{"kind", "median"}, {"grace_period", 3}},
          {{"kind", "median"}, {"grace_period", 3}, {"hard_stop", false}, {"min_time_slice", 2}},
          {{"kind", "pbt"}, {"perturbation_interval", 4}, {"hyperparam_mutations", kMutations}},
          {{"kind", "pbt"}, {"perturbation_interval", 4}, {"hyperparam_mutations", kMutations}, {"synch", true}},
          {{"kind", "pbt_replay"}, {"policy", Value::array({Value::array({5, {{"lr", 1}}})})}}};
}

std::string error_of(const Value& description) {
  try {
    make_scheduler(description, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class EverySchedulerTest : public testing::TestWithParam<int> {
 protected:
  Value description() const { return all_schedulers()[static_cast<std::size_t>(GetParam())]; }
};
INSTANTIATE_TEST_SUITE_P(All, EverySchedulerTest, testing::Range(0, 9));

TEST_P(EverySchedulerTest, EndsEveryTrialWhateverFails) {
  for (const int trials : {1, 2, 5, 40, 150})
    for (const int slots : {1, 3, 50})
      for (const double fails : {0.0, 0.02, 0.3})
        for (const int retries : {0, 3})
          for (const bool checkpoints : {true, false}) {
            Simulation simulation{.description = description(),
                                  .trials = trials,
                                  .slots = slots,
                                  .steps = 30,
                                  .fails = fails,
                                  .retries = retries,
                                  .checkpoints = checkpoints};
            simulation.run();
            EXPECT_EQ(simulation.standstills, 0) << trials << " trials, " << slots << " slots, " << fails;
            EXPECT_EQ(simulation.count(""), 0);
            EXPECT_EQ(static_cast<int>(simulation.all.size()), trials);
            if (HasFailure()) return;
          }
}

TEST_P(EverySchedulerTest, DecidesTheSameWhenItIsAskedAgain) {
  const auto events = [&](std::uint64_t seed) {
    Simulation simulation{
        .description = description(), .trials = 100, .steps = 30, .fails = 0.01, .retries = 1, .seed = seed};
    simulation.run();
    return simulation.events;
  };
  EXPECT_EQ(events(3), events(3));
  EXPECT_NE(events(3), events(4));
}

TEST_P(EverySchedulerTest, AcceptsReportsOfTrialsThatItDoesNotKnow) {
  const auto scheduler = make_scheduler(description(), 1);
  EXPECT_NO_THROW(scheduler->on_result(5, 1, std::nan(""), false));
  EXPECT_NO_THROW(scheduler->on_ended(6, true));
  EXPECT_EQ(scheduler->choose({}, {}), std::nullopt);
}

TEST(SchedulerTest, FifoNeverMakesAReportWait) {
  EXPECT_FALSE(make_scheduler({{"kind", "fifo"}}, 1)->may_stop());
  EXPECT_TRUE(make_scheduler({{"kind", "asha"}}, 1)->may_stop());
}

TEST(SchedulerTest, RefusesWrongOptionsByName) {
  EXPECT_EQ(error_of({{"kind", "asha"}, {"maxt", 3}}),
            "[tune] asha has no option 'maxt'; its options are max_t, grace_period, reduction_factor, brackets, "
            "stop_last_trials");
  EXPECT_EQ(error_of({{"kind", "asha"}, {"max_t", -1}}), "[tune] max_t of asha is -1; it must be more than 0");
  EXPECT_EQ(error_of({{"kind", "asha"}, {"max_t", "x"}}), "[tune] max_t of asha is \"x\"; it must be a number");
  EXPECT_EQ(error_of({{"kind", "asha"}, {"grace_period", 200}}),
            "[tune] grace_period of asha is 200; it must be at most max_t");
  EXPECT_EQ(error_of({{"kind", "hyperband"}, {"reduction_factor", 1}}),
            "[tune] reduction_factor of hyperband is 1; it must be more than 1");
  EXPECT_EQ(error_of({{"kind", "median"}, {"min_samples_required", 1.5}}),
            "[tune] min_samples_required of median is 1.5; it must be a whole number");
  EXPECT_EQ(error_of({{"kind", "median"}, {"hard_stop", 1}}),
            "[tune] hard_stop of median is 1; it must be true or false");
  EXPECT_NE(error_of({{"kind", "pbt"}}).find("hyperparam_mutations of pbt is missing"), std::string::npos);
  EXPECT_NE(error_of({{"kind", "pbt"}, {"hyperparam_mutations", {{"a", {{"lr", 3}}}}}}).find("has 3 for a/lr"),
            std::string::npos);
  EXPECT_NE(error_of({{"kind", "pbt"}, {"hyperparam_mutations", kMutations}, {"quantile_fraction", 0.6}})
                .find("quantile_fraction of pbt is 0.6; it must be from 0 to 0.5"),
            std::string::npos);
  EXPECT_NE(error_of({{"kind", "hyperbolic"}}).find("the kinds are fifo, asha"), std::string::npos);
  EXPECT_NE(error_of("asha").find("it must be a dict with a kind"), std::string::npos);
  EXPECT_EQ(error_of({{"kind", "asha"}, {"max_t", nullptr}}), "");
}

}  // namespace
}  // namespace lockstep::tune
