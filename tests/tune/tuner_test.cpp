// Trials of functions, in threads of this process.

#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <mutex>
#include <thread>

#include "tuner_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

/// The message of the ConfigError that `call` throws.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Value parabola(const Value& config) {
  const double x = config["x"];
  return {{"loss", (x - 1) * (x - 1)}};
}

TEST_F(TunerTest, GridPointsAreTriedInOrder) {
  const Value space = {{"a", tune::grid_search({1, 2})}, {"b", tune::grid_search({"x", "y"})}, {"c", 5}};
  Tuner tuner([](const Value& config) { return Value{{"a", config["a"]}}; }, options(space, {.num_samples = 2}));
  const ResultGrid grid = tuner.fit();
  const auto point = [](int a, const char* b) { return Value{{"a", a}, {"b", b}, {"c", 5}}; };
  EXPECT_THAT(configs(grid), ElementsAre(point(1, "x"), point(1, "y"), point(2, "x"), point(2, "y"), point(1, "x"),
                                         point(1, "y"), point(2, "x"), point(2, "y")));
  EXPECT_EQ(grid.num_terminated(), 8);
  EXPECT_EQ(grid[2].metrics["a"], 2);
  EXPECT_EQ(grid[2].metrics["training_iteration"], 1);
  EXPECT_EQ(grid[2].state, "finished");
  EXPECT_EQ(grid.experiment_path(), place_ / "search");
}

TEST_F(TunerTest, ASearcherFindsTheMinimum) {
  Tuner tuner(parabola, options({{"x", tune::uniform(-5, 5)}},
                                {.metric = "loss",
                                 .mode = "min",
                                 .num_samples = 60,
                                 .search_alg = tune::TPESearch{.n_startup = 8, .points_to_evaluate = {{{"x", 4.5}}}}}));
  const ResultGrid grid = tuner.fit();
  EXPECT_EQ(grid.size(), 60);
  EXPECT_EQ(grid[0].config["x"], 4.5);
  const Result best = grid.get_best_result();
  EXPECT_LT(best.metrics["loss"].get<double>(), 0.05);
  for (const Result& result : grid) EXPECT_GE(result.metrics["loss"], best.metrics["loss"]);
  EXPECT_GT(grid.get_best_result("loss", "max").metrics["loss"], 10);
}

TEST_F(TunerTest, FunctionsMayTakeTheSessionAndReport) {
  const auto train = [](const Value& config, Session& session) {
    EXPECT_EQ(session.world_size(), 1);
    EXPECT_EQ(session.config(), config);
    EXPECT_EQ(session.experiment_name(), "search");
    for (int step = 0; step < 3; ++step) session.report({{"loss", config["x"].get<int>() * 10 + step}});
  };
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({3, 1, 2})}}, {.metric = "loss", .mode = "min"})).fit();
  EXPECT_EQ(grid[0].metrics["loss"], 32);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 3);
  EXPECT_EQ(grid.get_best_result().config["x"], 1);
  EXPECT_EQ(grid.get_best_result("loss", "max", "all").config["x"], 3);
  EXPECT_EQ(grid.get_best_result("loss", "min", "avg").config["x"], 1);
}

TEST_F(TunerTest, ANumberIsTheOneMetric) {
  const auto twice = [](const Value& config) { return 2 * config["x"].get<double>(); };
  const ResultGrid grid =
      Tuner(twice, options({{"x", tune::grid_search({4})}}, {.metric = "loss", .mode = "min"})).fit();
  EXPECT_EQ(grid[0].metrics["loss"], 8);
}

TEST_F(TunerTest, AshaStopsTheWorseTrials) {
  std::atomic<int> reports = 0;
  const auto train = [&](const Value& config, Session& session) {
    for (int step = 1; step <= 50; ++step) {
      ++reports;
      session.report({{"loss", config["x"].get<int>()}});
    }
  };
  std::vector<Value> values;
  for (int x = 0; x < 16; ++x) values.emplace_back(x);
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search(values)}},
                           {.metric = "loss",
                            .mode = "min",
                            .scheduler = tune::ASHAScheduler{.max_t = 16, .grace_period = 1, .reduction_factor = 4},
                            .max_concurrent_trials = 1}))
          .fit();
  EXPECT_EQ(grid.num_terminated(), 16);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 16);
  EXPECT_EQ(grid[15].metrics["training_iteration"], 1);
  EXPECT_LT(reports, 60);
}

TEST_F(TunerTest, AStoppedFunctionMayEndByItself) {
  std::atomic<int> cleaned = 0;
  const auto train = [&](Session& session) {
    int step = 0;
    while (!session.should_stop()) session.report({{"step", ++step}});
    ++cleaned;
  };
  auto given = options({}, {.num_samples = 3});
  given.run_config.stop = {{"step", 5}};
  const ResultGrid grid = Tuner(train, given).fit();
  EXPECT_EQ(cleaned, 3);
  for (const Result& result : grid) EXPECT_EQ(result.metrics["step"], 5);
}

TEST_F(TunerTest, AFailureIsTheTrialsOwn) {
  const auto train = [](const Value& config) -> Value {
    if (config["x"] == 2) throw std::runtime_error("boom at 2");
    return {{"loss", config["x"]}};
  };
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({1, 2, 3})}}, {.metric = "loss", .mode = "max"})).fit();
  EXPECT_EQ(grid.num_errors(), 1);
  ASSERT_THAT(grid.errors(), SizeIs(1));
  EXPECT_EQ(grid.errors()[0].what(), std::string("std::runtime_error: boom at 2"));
  EXPECT_EQ(grid.errors()[0].result().config["x"], 2);
  EXPECT_EQ(grid[1].state, "failed");
  EXPECT_EQ(grid[1].error, "std::runtime_error: boom at 2");
  EXPECT_EQ(grid.get_best_result().config["x"], 3);
}

TEST_F(TunerTest, AFailedTrialIsTriedAgainFromItsCheckpoint) {
  std::mutex mutex;
  std::vector<int> begins;
  const auto train = [&](Session& session) {
    int step = 0;
    if (const auto checkpoint = session.checkpoint()) step = checkpoint->to_dict()["step"].get<int>();
    {
      const std::lock_guard lock(mutex);
      begins.push_back(step);
    }
    while (step < 6) {
      ++step;
      session.report({{"step", step}}, Checkpoint::from_dict({{"step", step}}));
      if (step % 2 == 0 && session.attempt() < 2) throw std::runtime_error("again");
    }
  };
  auto given = options({}, {});
  given.run_config.failure.max_failures = 2;
  given.run_config.checkpoint.num_to_keep = 1;
  const ResultGrid grid = Tuner(train, given).fit();
  EXPECT_THAT(begins, ElementsAre(0, 2, 4));
  EXPECT_EQ(grid.num_errors(), 0);
  ASSERT_TRUE(grid[0].checkpoint);
  EXPECT_EQ(grid[0].checkpoint->to_dict()["step"], 6);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 6);
  EXPECT_EQ(
      std::count_if(fs::directory_iterator(grid[0].path), fs::directory_iterator(),
                    [](const auto& entry) { return entry.path().filename().string().starts_with("checkpoint_"); }),
      1);
  EXPECT_EQ(Result::from_path(grid[0].path).state, "finished");
}

TEST_F(TunerTest, FailFastEndsTheOthers) {
  const auto train = [](const Value& config, Session& session) {
    if (config["x"] == 0) throw std::runtime_error("first");
    while (!session.should_stop()) session.report({{"loss", 1}});
  };
  const ResultGrid grid = Tuner(train, options({{"x", tune::grid_search({1, 0, 2, 3, 4, 5})}},
                                               {.max_concurrent_trials = 2, .fail_fast = true}))
                              .fit();
  EXPECT_EQ(grid.num_errors(), 1);
  EXPECT_EQ(grid.size(), 2);
}

TEST_F(TunerTest, TheTimeBudgetEndsAllTrials) {
  const auto train = [](Session& session) {
    for (;;) {
      session.report({{"loss", 1}});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const ResultGrid grid =
      Tuner(
          train,
          options({}, {.num_samples = -1, .max_concurrent_trials = 3, .time_budget_s = std::chrono::milliseconds(200)}))
          .fit();
  EXPECT_EQ(grid.size(), 3);
  EXPECT_EQ(grid.num_terminated(), 3);
}

TEST_F(TunerTest, PopulationsExchangeCheckpointsAndConfigurations) {
  const auto train = [](const Value& config, Session& session) {
    double score = 0;
    if (const auto checkpoint = session.checkpoint()) score = checkpoint->to_dict()["score"];
    for (;;) {
      score += config["rate"].get<double>();
      session.report({{"score", score}}, Checkpoint::from_dict({{"score", score}}));
    }
  };
  auto given =
      options({{"rate", tune::grid_search({0.1, 0.2, 0.8, 1.0})}},
              {.metric = "score",
               .mode = "max",
               .scheduler = tune::PopulationBasedTraining{.time_attr = "training_iteration",
                                                          .perturbation_interval = 3,
                                                          .hyperparam_mutations = {{"rate", tune::uniform(0.1, 1)}},
                                                          .synch = true},
               .max_concurrent_trials = 4});
  given.run_config.stop = {{"training_iteration", 30}};
  given.run_config.checkpoint.num_to_keep = 1;
  const ResultGrid grid = Tuner(train, given).fit();
  EXPECT_EQ(grid.num_terminated(), 4);
  // Alone, the worst would have 30 * 0.1.
  for (const Result& result : grid) EXPECT_GT(result.metrics["score"].get<double>(), 3.5);
  EXPECT_NE(grid[0].config["rate"], 0.1);
}

TEST_F(TunerTest, SeveralMetricsHaveAFront) {
  const auto train = [](const Value& config) {
    const double x = config["x"];
    return Value{{"loss", x * x}, {"size", (x - 2) * (x - 2)}};
  };
  const ResultGrid grid = Tuner(train, options({{"x", tune::grid_search({-1, 0, 1, 2, 3})}},
                                               {.metric = {"loss", "size"}, .mode = {"min", "min"}}))
                              .fit();
  std::vector<Value> front;
  for (const Result& result : grid.get_pareto_front()) front.push_back(result.config["x"]);
  EXPECT_THAT(front, ElementsAre(0, 1, 2));
  EXPECT_THAT(refusal([&] { grid.get_best_result(); }), HasSubstr("are several: loss, size"));
}

TEST_F(TunerTest, RestoreContinuesAfterAMissingMetric) {
  std::atomic<bool> broken = true;
  const auto train = [&](const Value& config) -> Value {
    if (broken && config["i"] == 5) return {{"los", 1}};
    return {{"loss", config["x"]}};
  };
  const Value space = {{"i", tune::grid_search({0, 1, 2, 3, 4, 5, 6, 7})}, {"x", tune::uniform(0, 1)}};
  const tune::TuneConfig config{
      .metric = "loss", .mode = "min", .search_alg = tune::TPESearch{.n_startup = 2}, .max_concurrent_trials = 1};
  EXPECT_THAT(refusal([&] { Tuner(train, options(space, config)).fit(); }),
              HasSubstr("no number \"loss\"; it has los"));
  broken = false;
  ASSERT_TRUE(Tuner::can_restore(place_ / "search"));
  const ResultGrid restored = Tuner::restore(place_ / "search", train).fit();
  const ResultGrid whole = Tuner(train, options(space, config, "whole")).fit();
  EXPECT_EQ(configs(restored), configs(whole));
  EXPECT_EQ(restored.get_best_result().config, whole.get_best_result().config);
}

TEST_F(TunerTest, RestoreTriesFailedTrialsAgain) {
  std::atomic<bool> broken = true;
  const auto train = [&](const Value& config) -> Value {
    if (broken && config["x"] == 1) throw std::runtime_error("boom");
    return {{"loss", 1}};
  };
  EXPECT_EQ(Tuner(train, options({{"x", tune::grid_search({0, 1, 2})}}, {})).fit().num_errors(), 1);
  broken = false;
  EXPECT_EQ(Tuner::restore(place_ / "search", train).fit().num_errors(), 1);
  EXPECT_EQ(Tuner::restore(place_ / "search", train, {.restart_errored = true}).fit().num_errors(), 0);
}

Value slow_parabola(const Value& config) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return parabola(config);
}

TEST_F(TunerTest, AKilledExperimentEndsAsAnUndisturbedOne) {
  const Value space = {{"x", tune::uniform(-5, 5)}};
  const tune::TuneConfig config{
      .metric = "loss", .mode = "min", .num_samples = 100, .search_alg = tune::TPESearch{}, .max_concurrent_trials = 1};
  const ResultGrid whole = Tuner(parabola, options(space, config, "whole")).fit();
  const pid_t child = ::fork();
  if (child == 0) {
    Tuner(slow_parabola, options(space, config)).fit();
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(Tuner::can_restore(place_ / "search"));
  EXPECT_LT(ResultGrid::from_path(place_ / "search").size(), 100);
  const ResultGrid restored = Tuner::restore(place_ / "search", parabola).fit();
  EXPECT_EQ(configs(restored), configs(whole));
  EXPECT_EQ(restored.get_best_result().metrics["loss"], whole.get_best_result().metrics["loss"]);
}

std::atomic<int> interrupts = 0;

TEST_F(TunerTest, CtrlCEndsCleanlyAndRestoreContinues) {
  const auto before = std::signal(SIGINT, [](int) { ++interrupts; });
  std::atomic<bool> first = true;
  const auto train = [&](const Value& config, Session& session) {
    int step = 0;
    if (const auto checkpoint = session.checkpoint()) step = checkpoint->to_dict()["step"].get<int>();
    while (step < 20) {
      ++step;
      session.report({{"step", step}, {"x", config["x"]}}, Checkpoint::from_dict({{"step", step}}));
      if (step == 10 && first.exchange(false)) std::raise(SIGINT);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const ResultGrid cut =
      Tuner(train, options({{"x", tune::grid_search({1, 2, 3, 4, 5, 6})}}, {.max_concurrent_trials = 2})).fit();
  EXPECT_EQ(interrupts, 1);
  EXPECT_LT(cut.num_terminated(), 6);
  EXPECT_EQ(cut.num_errors(), 0);
  const ResultGrid grid = Tuner::restore(place_ / "search", train).fit();
  EXPECT_EQ(grid.num_terminated(), 6);
  for (const Result& result : grid) {
    EXPECT_EQ(result.metrics["step"], 20);
    EXPECT_EQ(result.metrics["training_iteration"], 20);
  }
  std::signal(SIGINT, before);
}

TEST_F(TunerTest, TakenNamesAreRefused) {
  Tuner(parabola, options({{"x", 1}}, {})).fit();
  EXPECT_THAT(refusal([&] { Tuner(parabola, options({{"x", 1}}, {})).fit(); }), HasSubstr("Tuner::restore("));
  EXPECT_THAT(refusal([&] { Tuner::restore(place_ / "no", parabola); }), HasSubstr("there is no experiment"));
  EXPECT_FALSE(Tuner::can_restore(place_));
}

TEST_F(TunerTest, WrongOptionsAreRefusedBeforeTheStart) {
  const auto made = [&](tune::TuneConfig config, Value space = {{"x", 1}}) {
    return refusal([&] { Tuner(parabola, options(std::move(space), std::move(config))); });
  };
  EXPECT_THAT(made({.num_samples = 0}), HasSubstr("num_samples is 0"));
  EXPECT_THAT(made({.metric = "loss", .mode = "least"}), HasSubstr("mode is \"least\""));
  EXPECT_THAT(made({.num_samples = -1}), HasSubstr("would never end"));
  EXPECT_THAT(made({.search_alg = tune::TPESearch{}}), HasSubstr("metric is missing"));
  EXPECT_THAT(made({.metric = "loss", .scheduler = tune::ASHAScheduler{.max_t = -1}}), HasSubstr("max_t of asha"));
  EXPECT_THAT(made({.max_concurrent_trials = 0}), HasSubstr("max_concurrent_trials is 0"));
  EXPECT_THAT(made({}, Value::array()), HasSubstr("must be a dict"));
  EXPECT_THAT(refusal([] { tune::uniform(2, 1); }), HasSubstr("uniform"));
  EXPECT_FALSE(fs::exists(place_ / "search"));
}

}  // namespace
}  // namespace lockstep
