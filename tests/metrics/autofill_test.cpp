#include "metrics/autofill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cstdlib>

#include "base/ids.h"

namespace lockstep::metrics {
namespace {

using testing::ElementsAre;

const Instant kStart{1000s};
const WallTime kWall{std::chrono::milliseconds(1657829125900)};

RunConstants constants() {
  return {.trial_id = "4913f_00000", .experiment_id = "5a3f8b9bf875437881a8ddc7e4dd3340", .config = Value{{"lr", 0.5}}};
}

Autofill started(RunConstants run = constants(), Progress from = {}) {
  Autofill autofill(std::move(run));
  autofill.begin_attempt(kStart, from);
  autofill.function_started({"host", "10.0.0.1", 77}, kStart + 250ms);
  return autofill;
}

std::vector<std::string> keys(const Value& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

TEST(Autofill, HasTheKeysInTheOrderThatUsersKnow) {
  auto autofill = started();
  const Value& result = autofill.fill({{"epoch", 0}}, {1657829124.5, 0.125}, kStart + 1s, kWall);
  EXPECT_THAT(
      keys(result),
      ElementsAre("epoch", "_timestamp", "_time_this_iter_s", "_training_iteration", "time_this_iter_s", "done",
                  "timesteps_total", "episodes_total", "training_iteration", "trial_id", "experiment_id", "date",
                  "timestamp", "time_total_s", "pid", "hostname", "node_ip", "config", "time_since_restore",
                  "timesteps_since_restore", "iterations_since_restore", "warmup_time", "experiment_tag"));
}

TEST(Autofill, FillsInWhatTheDriverKnows) {
  auto autofill = started();
  const Value expected{{"epoch", 0},
                       {"_timestamp", 1657829124},
                       {"_time_this_iter_s", 0.125},
                       {"_training_iteration", 1},
                       {"time_this_iter_s", 1.0},
                       {"done", false},
                       {"timesteps_total", nullptr},
                       {"episodes_total", nullptr},
                       {"training_iteration", 1},
                       {"trial_id", "4913f_00000"},
                       {"experiment_id", "5a3f8b9bf875437881a8ddc7e4dd3340"},
                       {"date", date_string(kWall)},
                       {"timestamp", 1657829125},
                       {"time_total_s", 1.0},
                       {"pid", 77},
                       {"hostname", "host"},
                       {"node_ip", "10.0.0.1"},
                       {"config", {{"lr", 0.5}}},
                       {"time_since_restore", 1.0},
                       {"timesteps_since_restore", 0},
                       {"iterations_since_restore", 1},
                       {"warmup_time", 0.25},
                       {"experiment_tag", "0"}};
  EXPECT_EQ(autofill.fill({{"epoch", 0}}, {1657829124.5, 0.125}, kStart + 1s, kWall), expected);
  EXPECT_EQ(autofill.last(), expected);
}

TEST(Autofill, DateIsLocalTime) {
  const char* before = std::getenv("TZ");
  const std::string saved = before != nullptr ? before : "";
  ::setenv("TZ", "UTC+2", 1);  // POSIX: two hours west
  ::tzset();
  auto autofill = started();
  const Value date = autofill.fill(Value::object(), {}, kStart, kWall)["date"];
  if (before != nullptr)
    ::setenv("TZ", saved.c_str(), 1);
  else
    ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(date, "2022-07-14_18-05-25");
}

TEST(Autofill, CountsAndAddsUp) {
  auto autofill = started();
  autofill.fill({{"epoch", 0}}, {10, 0.5}, kStart + 1s, kWall);
  const Value& result = autofill.fill({{"epoch", 1}}, {11, 0.25}, kStart + 1500ms, kWall + 2s);
  EXPECT_EQ(result["epoch"], 1);
  EXPECT_EQ(result["training_iteration"], 2);
  EXPECT_EQ(result["_training_iteration"], 2);
  EXPECT_EQ(result["iterations_since_restore"], 2);
  EXPECT_EQ(result["time_this_iter_s"], 0.5);
  EXPECT_EQ(result["time_total_s"], 1.5);
  EXPECT_EQ(result["time_since_restore"], 1.5);
  EXPECT_EQ(result["_time_this_iter_s"], 0.25);
  EXPECT_EQ(result["_timestamp"], 11);
  EXPECT_EQ(result["timestamp"], 1657829127);
  EXPECT_EQ(result["date"], date_string(kWall + 2s));
}

TEST(Autofill, ANewAttemptGoesOnFromTheCheckpoint) {
  auto autofill = started();
  for (int i = 0; i < 5; ++i) autofill.fill({{"epoch", i}}, {0, 0.5}, kStart + 1s * (i + 1), kWall);
  autofill.begin_attempt(kStart + 10s, {.training_iteration = 3, .time_total = 3.0});
  autofill.function_started({"other", "10.0.0.2", 78}, kStart + 10s + 500ms);
  const Value& result = autofill.fill({{"epoch", 3}}, {0, 0.5}, kStart + 12s, kWall);
  EXPECT_EQ(result["training_iteration"], 4);
  EXPECT_EQ(result["time_total_s"], 5.0);
  EXPECT_EQ(result["time_this_iter_s"], 2.0);
  EXPECT_EQ(result["time_since_restore"], 2.0);
  EXPECT_EQ(result["iterations_since_restore"], 1);
  EXPECT_EQ(result["_training_iteration"], 1);
  EXPECT_EQ(result["warmup_time"], 0.5);
  EXPECT_EQ(result["pid"], 78);
  EXPECT_EQ(result["hostname"], "other");
  EXPECT_EQ(result["node_ip"], "10.0.0.2");
  EXPECT_EQ(autofill.progress().training_iteration, 4);
  EXPECT_EQ(autofill.progress().time_total, 5.0);
}

TEST(Autofill, TheUsersKeysWin) {
  auto autofill = started();
  const Value& result = autofill.fill(
      {{"date", "today"}, {"loss", 1.0}, {"training_iteration", 100}, {"done", "maybe"}}, {}, kStart + 1s, kWall);
  EXPECT_EQ(keys(result)[0], "date");
  EXPECT_EQ(result.size(), 1 + 22U);
  EXPECT_EQ(result["date"], "today");
  EXPECT_EQ(result["training_iteration"], 100);
  autofill.mark_done();
  EXPECT_EQ(autofill.last()["done"], "maybe");
  // Our own count goes on beneath.
  EXPECT_EQ(autofill.progress().training_iteration, 1);
  EXPECT_EQ(autofill.fill({{"loss", 0.5}}, {}, kStart + 2s, kWall)["training_iteration"], 2);
}

TEST(Autofill, OtherKeysEveryTime) {
  auto autofill = started();
  autofill.fill({{"a", 1}, {"b", 2}}, {}, kStart, kWall);
  EXPECT_FALSE(autofill.fill({{"a", 3}}, {}, kStart, kWall).contains("b"));
  const Value& result = autofill.fill({{"c", 4}, {"a", 5}}, {}, kStart + 1s, kWall);
  EXPECT_EQ(result["c"], 4);
  EXPECT_EQ(result["a"], 5);
  EXPECT_EQ(result["training_iteration"], 3);
  EXPECT_EQ(result["date"], date_string(kWall));
  EXPECT_EQ(result["trial_id"], "4913f_00000");
  EXPECT_EQ(autofill.fill(Value::object(), {}, kStart, kWall).size(), 22U);
}

TEST(Autofill, ValuesChangeTheirType) {
  auto autofill = started();
  autofill.fill({{"x", {{"deep", {1, 2}}}}}, {}, kStart, kWall);
  EXPECT_EQ(autofill.fill({{"x", "text"}}, {}, kStart, kWall)["x"], "text");
  EXPECT_EQ(autofill.fill({{"x", nullptr}}, {}, kStart, kWall)["x"], nullptr);
}

TEST(Autofill, DetailedKeysAreTheWorkersOwnView) {
  auto run = constants();
  run.detailed = true;
  auto autofill = started(run, {.training_iteration = 7, .time_total = 70});
  autofill.fill({{"loss", 1}}, {1657829000, 0.5}, kStart + 1s, kWall);
  const Value& result = autofill.fill({{"loss", 1}}, {1657829001.75, 0.25}, kStart + 2s, kWall);
  EXPECT_EQ(result.size(), 1 + 27U);
  EXPECT_EQ(result["_date"], date_string(WallTime(1657829001s)));
  EXPECT_EQ(result["_time_total_s"], 0.75);
  EXPECT_EQ(result["_pid"], 77);
  EXPECT_EQ(result["_hostname"], "host");
  EXPECT_EQ(result["_node_ip"], "10.0.0.1");
  EXPECT_EQ(result["_training_iteration"], 2);
  EXPECT_EQ(result["training_iteration"], 9);
}

TEST(Autofill, MarkDone) {
  auto autofill = started();
  autofill.mark_done();
  EXPECT_EQ(autofill.last(), Value::object());
  autofill.fill({{"loss", 1}}, {}, kStart, kWall);
  autofill.mark_done();
  EXPECT_EQ(autofill.last()["done"], true);
  EXPECT_EQ(autofill.fill({{"loss", 1}}, {}, kStart, kWall)["done"], false);
}

TEST(Autofill, AClockThatStandsStillGivesNoNegativeTimes) {
  auto autofill = started();
  autofill.fill({{"loss", 1}}, {}, kStart + 1s, kWall);
  const Value& result = autofill.fill({{"loss", 1}}, {}, kStart + 500ms, kWall);
  EXPECT_EQ(result["time_this_iter_s"], 0.0);
  EXPECT_EQ(result["time_total_s"], 1.0);
}

TEST(Autofill, MetricsThatAreNoDictAreABug) {
  auto autofill = started();
  EXPECT_THROW(autofill.fill(Value::array(), {}, kStart, kWall), InternalError);
}

TEST(Autofill, KnowsItsKeys) {
  EXPECT_TRUE(is_autofilled("training_iteration"));
  EXPECT_TRUE(is_autofilled("_node_ip"));
  EXPECT_FALSE(is_autofilled("loss"));
  EXPECT_FALSE(is_autofilled(""));
}

TEST(Autofill, DetailedMetricsWanted) {
  ::unsetenv("LOCKSTEP_DETAILED_METRICS");
  EXPECT_FALSE(detailed_metrics_wanted());
  for (const auto& [text, wanted] : {std::pair{"1", true}, {"0", false}, {"", false}}) {
    ::setenv("LOCKSTEP_DETAILED_METRICS", text, 1);
    EXPECT_EQ(detailed_metrics_wanted(), wanted) << text;
  }
  ::unsetenv("LOCKSTEP_DETAILED_METRICS");
}

TEST(WorkerKeys, AreThoseOfTheWorker) {
  WorkerKeys worker(false);
  Value metrics{{"epoch", 0}};
  worker.fill(metrics, {1657829124.5, 0.125});
  EXPECT_EQ(
      metrics,
      (Value{{"epoch", 0}, {"_timestamp", 1657829124}, {"_time_this_iter_s", 0.125}, {"_training_iteration", 1}}));
  EXPECT_THAT(keys(metrics), ElementsAre("epoch", "_timestamp", "_time_this_iter_s", "_training_iteration"));
}

TEST(WorkerKeys, DetailedOnesCountWithinTheAttempt) {
  WorkerKeys worker(true);
  worker.set_place({"host", "10.0.0.1", 77});
  Value metrics = Value::object();
  worker.fill(metrics, {1657829124.5, 0.125});
  metrics = {{"_pid", "mine"}};
  worker.fill(metrics, {1657829125.5, 0.25});
  EXPECT_EQ(metrics["_training_iteration"], 2);
  EXPECT_EQ(metrics["_time_total_s"], 0.375);
  EXPECT_EQ(metrics["_hostname"], "host");
  EXPECT_EQ(metrics["_node_ip"], "10.0.0.1");
  EXPECT_EQ(metrics["_pid"], "mine");
  EXPECT_EQ(metrics["_date"], date_string(WallTime(std::chrono::seconds(1657829125))));
}

TEST(Autofill, RaysNamesAskForDetailsToo) {
  for (const char* name :
       {"SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS", "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"}) {
    EXPECT_FALSE(detailed_metrics_wanted());
    ::setenv(name, "1", 1);
    EXPECT_TRUE(detailed_metrics_wanted()) << name;
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace lockstep::metrics
