// Trials of functions: classes, computed values, stoppers, callbacks, names, resources and policies.

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "sys/node.h"
#include "tuner_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

template <class Call>
std::string refused(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void report_steps(const Value& config, Session& session) {
  for (int step = 1; step <= 10; ++step) session.report({{"step", step}, {"loss", config.value("x", 1.0) / step}});
}

TEST_F(TunerTest, ValuesAreComputedFromOthers) {
  const Value space = {{"x", tune::grid_search({1, 2})},
                       {"y", tune::sample_from([](const Value& spec) { return spec["config"]["z"].get<int>() + 1; })},
                       {"z", tune::sample_from([](const Value& spec) { return spec["config"]["x"].get<int>() * 10; })}};
  std::mutex mutex;
  std::vector<int> seen;
  const auto train = [&](const Value& config) {
    const std::lock_guard lock(mutex);
    seen.push_back(config["y"]);
    return Value{{"loss", config["y"]}};
  };
  const ResultGrid grid = Tuner(train, options(space, {})).fit();
  EXPECT_THAT(configs(grid), ElementsAre(Value{{"x", 1}, {"y", 11}, {"z", 10}}, Value{{"x", 2}, {"y", 21}, {"z", 20}}));
  EXPECT_THAT(seen, UnorderedElementsAre(11, 21));
  EXPECT_THAT(refused([&] { Tuner::restore(place_ / "search", train); }), HasSubstr("param_space is missing"));
  EXPECT_EQ(Tuner::restore(place_ / "search", train, {.param_space = space}).fit().size(), 2);

  const Value circle = {{"a", tune::sample_from([](const Value& spec) { return spec["config"]["b"].get<int>(); })},
                        {"b", tune::sample_from([](const Value& spec) { return spec["config"]["a"].get<int>(); })}};
  EXPECT_THAT(refused([&] { Tuner(train, options(circle, {}, "circle")).fit(); }), HasSubstr("sample_from() of"));
}

class Counter {
 public:
  void setup(const Value& config) { end_ = config["end"]; }
  Value step() {
    ++count_;
    return {{"count", count_}, {"done", count_ >= end_}};
  }
  Value save_checkpoint() const { return {{"count", count_}}; }
  void load_checkpoint(const Value& saved) { count_ = saved["count"]; }
  void cleanup() { ++cleaned; }

  static std::atomic<int> cleaned;

 private:
  int count_ = 0, end_ = 0;
};
std::atomic<int> Counter::cleaned = 0;

TEST_F(TunerTest, ClassesHaveStepsAndCheckpoints) {
  auto given = options({{"end", tune::grid_search({2, 5})}}, {.metric = "count", .mode = "max"});
  const ResultGrid grid = Tuner(tune::class_trainable<Counter>(), given).fit();
  EXPECT_EQ(grid[0].metrics["training_iteration"], 2);
  EXPECT_EQ(grid[1].metrics["count"], 5);
  ASSERT_TRUE(grid[1].checkpoint);
  EXPECT_EQ(grid[1].checkpoint->to_dict()["count"], 5);
  EXPECT_EQ(Counter::cleaned, 2);
}

TEST_F(TunerTest, PausedClassesGoOn) {
  auto given = options({{"end", 4}}, {.metric = "count",
                                      .mode = "max",
                                      .num_samples = 6,
                                      .scheduler = tune::HyperBandScheduler{.max_t = 4, .reduction_factor = 2},
                                      .max_concurrent_trials = 2});
  const ResultGrid grid = Tuner(tune::class_trainable<Counter>(), given).fit();
  EXPECT_EQ(grid.num_errors(), 0);
  EXPECT_EQ(grid.get_best_result().metrics["count"], 4);
  for (const Result& result : grid) EXPECT_EQ(result.metrics["count"], result.metrics["training_iteration"]);
}

TEST_F(TunerTest, StoppersEndTrials) {
  const auto steps = [&](tune::Stop stop, const std::string& name) {
    return Tuner(report_steps, options({}, {.stop = std::move(stop)}, name)).fit()[0].metrics["step"].get<int>();
  };
  EXPECT_EQ(steps(tune::MaximumIterationStopper{.max_iter = 3}, "iterations"), 3);
  EXPECT_EQ(steps(Value{{"step", 4}}, "limit"), 4);
  EXPECT_EQ(
      steps([](const std::string& id, const Value& result) { return !id.empty() && result["step"] == 5; }, "function"),
      5);
  EXPECT_EQ(steps(tune::TrialPlateauStopper{.metric = "loss", .std = 0.1, .num_results = 2, .grace_period = 2}, "flat"),
            3);
  EXPECT_EQ(steps(tune::CombinedStopper{{tune::MaximumIterationStopper{.max_iter = 7}, Value{{"step", 6}}}}, "both"),
            6);
  EXPECT_THAT(refused([&] { steps(tune::MaximumIterationStopper{.max_iter = 0}, "wrong"); }), HasSubstr("max_iter"));
}

TEST_F(TunerTest, StoppersEndTheExperiment) {
  const auto train = [](const Value&) { return Value{{"loss", 1}}; };
  const ResultGrid grid =
      Tuner(train, options({}, {.num_samples = 50,
                                .max_concurrent_trials = 1,
                                .stop = tune::ExperimentPlateauStopper{.metric = "loss", .top = 5}}))
          .fit();
  EXPECT_EQ(grid.size(), 5);
  EXPECT_EQ(Tuner::restore(place_ / "search", train).fit().size(), 6);  // it remembers the first five
  const ResultGrid none =
      Tuner(report_steps, options({},
                                  {.num_samples = 50,
                                   .max_concurrent_trials = 1,
                                   .stop = tune::TimeoutStopper{.timeout = std::chrono::seconds(0)}},
                                  "timeout"))
          .fit();
  EXPECT_EQ(none.size(), 1);
}

class Notes : public tune::Callback {
 public:
  void on_trial_start(const tune::TrialInfo& trial) override { add("start", trial); }
  void on_trial_result(const tune::TrialInfo& trial, const Value& result) override {
    add("result " + std::to_string(result["step"].get<int>()), trial);
  }
  void on_trial_save(const tune::TrialInfo& trial, const Checkpoint& saved) override {
    add("save " + std::to_string(saved.to_dict()["step"].get<int>()), trial);
  }
  void on_trial_complete(const tune::TrialInfo& trial) override { add("complete", trial); }
  void on_trial_error(const tune::TrialInfo& trial, const std::string& error) override {
    add("error " + error.substr(error.size() - 4), trial);
  }
  void on_experiment_end(const fs::path& path) override { seen.push_back("end of " + path.filename().string()); }

  std::vector<std::string> seen;

 private:
  void add(const std::string& what, const tune::TrialInfo& trial) {
    EXPECT_EQ(trial.path.filename(), trial.name);
    EXPECT_EQ(trial.config["x"], trial.number);
    seen.push_back(std::to_string(trial.number) + " " + what);
  }
};

TEST_F(TunerTest, CallbacksObserveTrials) {
  const auto train = [](const Value& config, Session& session) {
    session.report({{"step", 1}});
    if (config["x"] == 1) throw std::runtime_error("a boom");
    session.report({{"step", 2}}, Checkpoint::from_dict({{"step", 2}}));
  };
  Notes notes;
  auto given = options({{"x", tune::grid_search({0, 1})}}, {.max_concurrent_trials = 1});
  given.run_config.callbacks = {&notes};
  Tuner(train, given).fit();
  EXPECT_THAT(notes.seen, ElementsAre("0 start", "0 result 1", "0 result 2", "0 save 2", "0 complete", "1 start",
                                      "1 result 1", "1 error boom", "end of search"));
  lockstep::Callback plain;
  given.run_config.callbacks = {&plain};
  EXPECT_THAT(refused([&] { Tuner(train, given); }), HasSubstr("derive it from tune::Callback"));
}

TEST_F(TunerTest, NamesAndResourcesAreTheCallers) {
  std::atomic<int> running = 0, most = 0;
  const auto train = [&](const Value& config, Session& session) {
    const int now = ++running;
    for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
    }
    EXPECT_THAT(session.trial_name(), HasSubstr("trial-"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --running;
    return Value{{"x", config["x"]}};
  };
  const double all = sys::usable_cores();
  auto given =
      options({{"x", tune::grid_search({1, 2, 2, 3})}}, {.trial_name_creator = [](const tune::TrialInfo& trial) {
                return "trial-" + std::to_string(trial.config["x"].get<int>());
              }});
  const ResultGrid grid = Tuner(tune::with_resources(train, {{"CPU", all}}), given).fit();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(grid[0].path.filename(), "trial-1");
  EXPECT_EQ(grid[1].path.filename(), "trial-2");
  EXPECT_THAT(grid[2].path.filename().string(), testing::StartsWith("trial-2_"));
  EXPECT_THAT(refused([&] { tune::with_resources(train, {{"unobtainium", 1}}); }), HasSubstr("unobtainium"));
}

TEST_F(TunerTest, PoliciesAreReplayed) {
  const auto train = [](const Value& config, Session& session) {
    double score = 0;
    if (const auto checkpoint = session.checkpoint()) score = checkpoint->to_dict()["score"];
    for (;;) {
      score += config["rate"].get<double>();
      session.report({{"score", score}, {"rate", config["rate"]}}, Checkpoint::from_dict({{"score", score}}));
    }
  };
  auto given =
      options({{"rate", tune::grid_search({0.1, 1.0})}},
              {.metric = "score",
               .mode = "max",
               .scheduler = tune::PopulationBasedTraining{.time_attr = "training_iteration",
                                                          .perturbation_interval = 2,
                                                          .hyperparam_mutations = {{"rate", tune::uniform(0.5, 1)}},
                                                          .quantile_fraction = 0.5,
                                                          .synch = true},
               .max_concurrent_trials = 2});
  given.run_config.stop = {{"training_iteration", 6}};
  const ResultGrid grid = Tuner(train, given).fit();
  std::string policy;
  for (const auto& entry : fs::directory_iterator(grid.experiment_path()))
    if (entry.path().filename().string().starts_with("pbt_policy_")) policy = entry.path();
  ASSERT_FALSE(policy.empty());
  EXPECT_TRUE(fs::exists(grid.experiment_path() / "pbt_global.txt"));

  auto again = options(Value::object(), {.scheduler = tune::PopulationBasedTrainingReplay{policy}}, "again");
  again.run_config.stop = {{"training_iteration", 6}};
  const ResultGrid replayed = Tuner(train, again).fit();
  ASSERT_EQ(replayed.size(), 1);
  EXPECT_NE(replayed[0].metrics["rate"], 0);
  EXPECT_THAT(refused([] { tune::TrialScheduler(tune::PopulationBasedTrainingReplay{"/no/such/file"}); }),
              HasSubstr("cannot be read"));
}

TEST_F(TunerTest, TheModeMustBeKnownToCompare) {
  EXPECT_THAT(
      refused([&] { Tuner(report_steps, options({}, {.metric = "loss", .scheduler = tune::ASHAScheduler{}})); }),
      HasSubstr("mode is missing"));
  const ResultGrid grid = Tuner(report_steps, options({}, {.metric = "loss"})).fit();
  EXPECT_THAT(refused([&] { grid.get_best_result(); }), HasSubstr("mode is missing"));
  EXPECT_EQ(grid.get_best_result("", "min").metrics["step"], 10);
}

TEST_F(TunerTest, TheTimeBudgetIsSecondsOrADuration) {
  const auto train = [](Session& session) {
    for (;;) {
      session.report({{"loss", 1}});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_EQ(Tuner(train, options({}, {.time_budget_s = 0.1})).fit().num_terminated(), 1);
  EXPECT_EQ(Tuner(train, options({}, {.time_budget_s = std::chrono::milliseconds(50)}, "b")).fit().num_terminated(), 1);
}

}  // namespace
}  // namespace lockstep
