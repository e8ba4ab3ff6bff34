// An experiment whose process was killed: its object is left while trials run, and opened again.

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "tune/experiment.h"

namespace lockstep::tune {
namespace {

class ExperimentReopen : public testing::Test {
 protected:
  ExperimentReopen() : directory_(std::filesystem::path(testing::TempDir()) / ("reopen_" + random_hex(8))) {}
  ~ExperimentReopen() override { std::filesystem::remove_all(directory_); }

  static ExperimentSettings settings(Value scheduler) {
    ExperimentSettings settings;
    settings.name = "reopened";
    settings.param_space = {{"x", {{"$domain", {{"kind", "uniform"}, {"lower", 0}, {"upper", 1}}}}}};
    settings.num_samples = 4;
    settings.metrics = {"loss"};
    settings.modes = {"min"};
    settings.scheduler = std::move(scheduler);
    return settings;
  }
  std::unique_ptr<Experiment> reopened(std::unique_ptr<Experiment> before) {
    before->sync();
    before.reset();
    return Experiment::open(directory_, {});
  }
  static Value report(double loss, int iteration) { return {{"loss", loss}, {"training_iteration", iteration}}; }

  const std::filesystem::path directory_;
};

const Value kAsha = {{"kind", "asha"}, {"max_t", 2}};

TEST_F(ExperimentReopen, a_trial_that_was_told_to_stop_has_ended_if_its_checkpoint_is_known) {
  auto experiment = Experiment::create(directory_, settings(kAsha));
  EXPECT_EQ(experiment->next()->trial, 0);
  EXPECT_EQ(experiment->on_report(0, report(1, 1), "c1").kind, Decision::Kind::go_on);
  EXPECT_EQ(experiment->on_report(0, report(0.5, 2), "c2").kind, Decision::Kind::stop);
  experiment = reopened(std::move(experiment));
  EXPECT_EQ(experiment->next()->trial, 1);
  EXPECT_EQ(experiment->trial(0).state, TrialState::terminated);
  EXPECT_EQ(experiment->trial(0).iterations, 2);
}

TEST_F(ExperimentReopen, a_report_without_a_checkpoint_is_made_again) {
  auto experiment = Experiment::create(directory_, settings(kAsha));
  experiment->next();
  experiment->on_report(0, report(1, 1), "c1");
  experiment->on_report(0, report(0.5, 2), "");
  experiment = reopened(std::move(experiment));
  const auto start = experiment->next();
  EXPECT_EQ(start->trial, 0);
  EXPECT_EQ(start->iterations, 1);
  EXPECT_EQ(start->checkpoint, "c1");
  EXPECT_EQ(experiment->results(0).size(), 1);
  EXPECT_EQ(experiment->trial(0).last_result.at("loss"), 1);
  EXPECT_EQ(experiment->on_report(0, report(0.5, 2), "").kind, Decision::Kind::stop);
}

TEST_F(ExperimentReopen, a_report_after_the_one_of_a_late_checkpoint_is_made_again) {
  auto experiment = Experiment::create(directory_, settings({{"kind", "asha"}, {"max_t", 9}}));
  experiment->next();
  experiment->on_report(0, report(1, 1), "");
  experiment->on_report(0, report(0.5, 2), "");
  experiment->on_checkpoint(0, "c1", 1);
  experiment = reopened(std::move(experiment));
  EXPECT_EQ(experiment->next()->iterations, 1);
  experiment->on_report(0, report(0.5, 2), "");
  EXPECT_EQ(experiment->trial(0).iterations, 2);
  EXPECT_EQ(experiment->results(0).size(), 2);
}

TEST_F(ExperimentReopen, a_trial_that_is_done_takes_no_further_step) {
  for (const bool by_caller : {false, true}) {
    std::filesystem::remove_all(directory_);
    auto experiment = Experiment::create(directory_, settings({{"kind", "fifo"}}));
    experiment->next();
    Value last = report(1, 1);
    if (!by_caller) last["done"] = true;
    EXPECT_EQ(experiment->on_report(0, last, "c1", by_caller).kind, Decision::Kind::stop);
    experiment = reopened(std::move(experiment));
    EXPECT_EQ(experiment->next()->trial, 1);
  }
}

TEST_F(ExperimentReopen, checkpoints_are_those_that_trials_would_go_on_from) {
  auto experiment = Experiment::create(directory_, settings(kAsha));
  experiment->next();
  EXPECT_TRUE(experiment->checkpoints().empty());
  experiment->on_report(0, report(1, 1), "c1");
  EXPECT_EQ(experiment->checkpoints(), std::vector<std::string>{"c1"});
  experiment->on_ended(0, "");
  EXPECT_TRUE(experiment->checkpoints().empty());
}

TEST_F(ExperimentReopen, a_database_that_was_not_finished_is_no_experiment) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "experiment.sqlite.partial") << "half of it";
  EXPECT_THROW(Experiment::open(directory_, {}), StorageError);
  EXPECT_EQ(Experiment::create(directory_, settings(kAsha))->size(), 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "experiment.sqlite.partial"));
  EXPECT_THROW(Experiment::create(directory_, settings(kAsha)), StorageError);
}

}  // namespace
}  // namespace lockstep::tune
