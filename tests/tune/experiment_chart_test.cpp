#include "tune/experiment_chart.h"

#include <gmock/gmock.h>
#include <lockstep/error.h>

#include <cmath>

namespace lockstep::tune {
namespace {

using testing::ElementsAre;

/// An experiment that is only read.
class KeptExperiment : public Experiment {
 public:
  ExperimentSettings kept;
  std::vector<Trial> trials;

  void add(Value config, Value result, TrialState state = TrialState::terminated) {
    Trial trial;
    trial.number = static_cast<TrialNumber>(trials.size());
    trial.name = "trial_" + std::to_string(trials.size());
    trial.state = state;
    trial.config = std::move(config);
    trial.last_result = std::move(result);
    trials.push_back(std::move(trial));
  }
  void use(std::shared_ptr<PointSearcher>) override {}
  void use(std::shared_ptr<Scheduler>) override {}
  std::optional<Start> next() override { return std::nullopt; }
  void set_name(TrialNumber, const std::string&) override {}
  Decision on_report(TrialNumber, const Value&, const std::string&, bool) override { return {}; }
  void on_checkpoint(TrialNumber, const std::string&, std::int64_t) override {}
  bool on_ended(TrialNumber, const std::string&) override { return false; }
  bool is_done() const override { return true; }
  void stop() override {}
  void sync() override {}
  const ExperimentSettings& settings() const override { return kept; }
  std::int64_t size() const override { return static_cast<std::int64_t>(trials.size()); }
  std::int64_t count(TrialState) const override { return 0; }
  std::vector<TrialNumber> donors() const override { return {}; }
  std::vector<std::string> checkpoints() const override { return {}; }
  Value replay_log() const override { return Value::array(); }
  Trial trial(TrialNumber number) const override { return trials[static_cast<std::size_t>(number)]; }
  std::vector<Value> results(TrialNumber) const override { return {}; }
  std::optional<TrialNumber> best(const std::string&, const std::string&, const std::string&, bool) const override {
    return std::nullopt;
  }
  std::vector<TrialNumber> pareto_front(const std::vector<std::string>&,
                                        const std::vector<std::string>&) const override {
    return {};
  }
  std::vector<TrialNumber> in_state(TrialState) const override { return {}; }
};

KeptExperiment kept_experiment() {
  KeptExperiment experiment;
  experiment.kept.name = "digits";
  experiment.kept.metrics = {"loss"};
  experiment.kept.modes = {"min"};
  const Value momentum = {{"$domain", {{"kind", "uniform"}, {"lower", 0.0}, {"upper", 1.0}}}};
  experiment.kept.param_space = {
      {"model", {{"lr", {{"$domain", {{"kind", "loguniform"}, {"lower", 1e-4}, {"upper", 0.1}}}}}}},
      {"net", {{"$domain", {{"kind", "choice"}, {"values", {"small", Value{{"momentum", momentum}}}}}}}}};
  experiment.add({{"model", {{"lr", 0.01}}}, {"net", "small"}}, {{"loss", 0.5}, {"size", 3}, {"val", {{"acc", 0.25}}}});
  experiment.add({{"model", {{"lr", 0.001}}}, {"net", {{"momentum", 0.75}}}}, {{"loss", "?"}, {"size", 4}});
  experiment.add({{"model", {{"lr", 0.5}}}, {"net", "odd"}}, Value(), TrialState::error);
  return experiment;
}

TEST(ExperimentChart, HasPointsLabelsAndMetrics) {
  const Chart chart = read_chart(kept_experiment(), {"size", "-val/acc"});
  EXPECT_EQ(chart.title, "digits");
  ASSERT_EQ(chart.dimensions.size(), 3U);
  EXPECT_EQ(chart.label(0, chart.trials[0].point[0]), "0.01");
  EXPECT_EQ(chart.label(1, chart.trials[0].point[1]), "small");
  EXPECT_TRUE(std::isnan(chart.trials[0].point[2]));
  EXPECT_EQ(chart.trials[1].point[2], 0.75);
  EXPECT_THAT(chart.trials[0].values, ElementsAre(0.5, 3, 0.25));
  EXPECT_TRUE(std::isnan(chart.trials[1].values[0])) << "a text is no number";
  EXPECT_EQ(chart.trials[1].values[1], 4);
  EXPECT_FALSE(chart.metrics[1].maximize);
  EXPECT_TRUE(chart.metrics[2].maximize);
}

TEST(ExperimentChart, AConfigurationOutsideOfTheSpaceKeepsItsNumbers) {
  const Chart chart = read_chart(kept_experiment());
  EXPECT_EQ(chart.trials[2].state, "error");
  EXPECT_EQ(chart.trials[2].point[0], 0.5);
  EXPECT_TRUE(std::isnan(chart.trials[2].point[1]));
}

TEST(ExperimentChart, AMetricThatNobodyReportedIsAnError) {
  EXPECT_THROW(read_chart(kept_experiment(), {"sise"}), ConfigError);
  KeptExperiment empty = kept_experiment();
  empty.trials.clear();
  EXPECT_TRUE(read_chart(empty).trials.empty()) << "those of the settings may come later";
}

TEST(ExperimentChart, OptionsNameFurtherMetrics) {
  const KeptExperiment experiment = kept_experiment();
  EXPECT_TRUE(further_metrics(experiment, {.kind = "history", .metric = "loss"}).empty());
  EXPECT_THAT(further_metrics(experiment, {.kind = "pareto", .x = "loss", .y = "size"}), ElementsAre("size"));
  EXPECT_TRUE(further_metrics(experiment, {.kind = "contour", .x = "model/lr", .y = "net"}).empty());
}

TEST(ExperimentChart, ValuesForOtherLanguagesHoldNoNaN) {
  const Chart chart = read_chart(kept_experiment(), {"size"});
  const Value history = plot_value(chart, {});
  EXPECT_EQ(history["trials"][0]["point"][2], nullptr);
  EXPECT_EQ(history["trials"][1]["values"], Value::array({nullptr, 4.0}));
  EXPECT_EQ(history["dimensions"][1]["labels"][0], "small");
  EXPECT_EQ(plot_value(chart, {.kind = "importance"})["importance"].size(), 3U);
  EXPECT_EQ(plot_value(chart, {.kind = "pareto"})["front"], Value::array({0}));
  const Value contour = plot_value(chart, {.kind = "contour", .x = "model/lr", .y = "net"});
  EXPECT_EQ(contour["grid"]["values"].size(), 2U);
  EXPECT_EQ(contour["grid"]["values"][0].size(), contour["grid"]["x"].size());
}

}  // namespace
}  // namespace lockstep::tune
