// Trials of trainers: runs with worker processes.

#include <fstream>

#include "tuner_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void train_line(Session& session) {
  const double rate = session.config()["rate"];
  double score = 0;
  int step = 0;
  if (const auto checkpoint = session.checkpoint()) {
    score = checkpoint->to_dict()["score"];
    step = checkpoint->to_dict()["step"];
  }
  const int steps = session.config().value("steps", 4);
  while (step < steps && !session.should_stop()) {
    ++step;
    score += rate;
    session.report({{"score", score}, {"workers", session.world_size()}, {"constant", session.config()["constant"]}},
                   Checkpoint::from_dict({{"score", score}, {"step", step}}));
  }
}
LOCKSTEP_TRAIN_FUNCTION(train_line);

void fail_once(Session& session) {
  const fs::path mark = session.config()["mark"].get<std::string>();
  if (session.config()["x"] == 1 && !fs::exists(mark)) {
    std::ofstream(mark).put('x');
    throw std::runtime_error("boom");
  }
  session.report({{"score", session.config()["x"]}});
}
LOCKSTEP_TRAIN_FUNCTION(fail_once);

DataParallelTrainer trainer(TrainFunction function, Value config, int workers) {
  return DataParallelTrainer(function, {.config = std::move(config), .scaling = {.num_workers = workers}});
}

TEST_F(TunerTest, TrialsOfATrainerAreRuns) {
  const ResultGrid grid = Tuner(trainer(train_line, {{"constant", 7}}, 2),
                                options({{"rate", tune::grid_search({1, 3, 2})}}, {.metric = "score", .mode = "max"}))
                              .fit();
  ASSERT_EQ(grid.size(), 3);
  EXPECT_EQ(grid.num_terminated(), 3);
  const Result best = grid.get_best_result();
  EXPECT_EQ(best.metrics["score"], 12);
  EXPECT_EQ(best.metrics["workers"], 2);
  EXPECT_EQ(best.metrics["constant"], 7);
  EXPECT_EQ(best.config["rate"], 3);
  ASSERT_TRUE(best.checkpoint);
  EXPECT_EQ(best.checkpoint->to_dict()["step"], 4);
  EXPECT_EQ(Result::from_path(best.path).metrics["score"], 12);
  EXPECT_EQ(best.path.parent_path(), place_ / "search");
}

TEST_F(TunerTest, ASpaceMayVaryTheWorkers) {
  const Value space = {{"train_loop_config", {{"rate", 1}}},
                       {"scaling_config", {{"num_workers", tune::grid_search({1, 2})}}}};
  const ResultGrid grid = Tuner(trainer(train_line, {{"constant", 7}}, 1), options(space, {})).fit();
  EXPECT_EQ(grid[0].metrics["workers"], 1);
  EXPECT_EQ(grid[1].metrics["workers"], 2);
  EXPECT_THROW(Tuner(trainer(train_line, {}, 1), options({{"train_loop_config", {{"rate", 1}}}, {"rate", 1}}, {})),
               ConfigError);
}

TEST_F(TunerTest, SchedulersReachTheWorkers) {
  const ResultGrid grid =
      Tuner(trainer(train_line, {{"constant", 7}, {"steps", 50}}, 1),
            options({{"rate", tune::grid_search({4, 1, 2, 3})}},
                    {.metric = "score",
                     .mode = "max",
                     .scheduler = tune::ASHAScheduler{.max_t = 8, .grace_period = 2, .reduction_factor = 2},
                     .max_concurrent_trials = 1}))
          .fit();
  EXPECT_EQ(grid.num_terminated(), 4);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 8);
  EXPECT_EQ(grid[1].metrics["training_iteration"], 2);
}

TEST_F(TunerTest, PopulationsOfTrainersExchangeCheckpoints) {
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
  given.run_config.stop = {{"training_iteration", 8}};
  const ResultGrid grid = Tuner(trainer(train_line, {{"constant", 7}, {"steps", 50}}, 1), given).fit();
  EXPECT_EQ(grid.num_terminated(), 2);
  EXPECT_EQ(grid.num_errors(), 0);
  EXPECT_GT(grid[0].metrics["score"].get<double>(), 1.5);
  EXPECT_GE(grid[0].metrics["training_iteration"], 8);  // 9 after a checkpoint that the other had made at 8
}

TEST_F(TunerTest, FailedRunsAreTheTrialsOwnAndRestored) {
  const auto given = trainer(fail_once, {{"mark", (place_ / "mark").string()}}, 1);
  const ResultGrid grid =
      Tuner(given, options({{"x", tune::grid_search({0, 1, 2})}}, {.metric = "score", .mode = "max"})).fit();
  EXPECT_EQ(grid.num_errors(), 1);
  EXPECT_EQ(grid.num_terminated(), 2);
  EXPECT_THAT(grid[1].error, testing::HasSubstr("boom"));
  const ResultGrid restored = Tuner::restore(place_ / "search", given, {.restart_errored = true}).fit();
  EXPECT_EQ(restored.num_errors(), 0);
  EXPECT_EQ(restored[1].metrics["score"], 1);
}

}  // namespace
}  // namespace lockstep
