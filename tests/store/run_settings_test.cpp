#include "store/run_settings.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::store {
namespace {

using std::chrono::duration;

RunSettings unusual() {
  RunSettings settings;
  settings.scaling = {.num_workers = 3,
                      .use_gpu = true,
                      .resources_per_worker = {{"CPU", 2}, {"GPU", 0.5}},
                      .placement_strategy = "SPREAD",
                      .resize_interval = duration<double>(5)};
  settings.run.failure = {.max_failures = -1, .count_node_failures = true};
  settings.run.checkpoint = {.num_to_keep = 2,
                             .score_attribute = "val/loss",
                             .score_order = "min",
                             .keep_all_ranks = true,
                             .persist_every = 5,
                             .when_busy = "skip"};
  settings.run.verbose = 0;
  settings.run.log_to_console = "all";
  settings.run.hang_timeout = duration<double>(1.5);
  settings.run.heartbeat_timeout = duration<double>(3);
  settings.run.max_report_size = 1000;
  settings.run.stop = {{"training_iteration", 10}};
  settings.run.preemption = "file:/notice";
  settings.run.preemption_grace = duration<double>(7);
  settings.run.wait_for_resources = false;
  settings.run.engine.kind = "join";
  settings.run.engine.nodes = 3;
  settings.run.engine.port = 1234;
  return settings;
}

TEST(RunSettings, ComeBackAsTheyWereWritten) {
  EXPECT_EQ(run_settings_from(to_value(RunSettings{})), RunSettings{});
  EXPECT_EQ(run_settings_from(to_value(unusual())), unusual());
}

TEST(RunSettings, StandInOneDict) {
  const Value value = to_value(unusual());
  EXPECT_EQ(value, (Value{{"num_workers", 3},
                          {"use_gpu", true},
                          {"resources_per_worker", {{"CPU", 2.0}, {"GPU", 0.5}}},
                          {"placement_strategy", "SPREAD"},
                          {"resize_interval", 5.0},
                          {"max_failures", -1},
                          {"count_node_failures", true},
                          {"num_to_keep", 2},
                          {"checkpoint_score_attribute", "val/loss"},
                          {"checkpoint_score_order", "min"},
                          {"keep_all_ranks", true},
                          {"persist_every", 5},
                          {"when_busy", "skip"},
                          {"verbose", 0},
                          {"hang_timeout", 1.5},
                          {"heartbeat_timeout", 3.0},
                          {"max_report_size", 1000},
                          {"stop", {{"training_iteration", 10.0}}},
                          {"preemption", "file:/notice"},
                          {"preemption_grace", 7.0},
                          {"wait_for_resources", false},
                          {"log_to_console", "all"},
                          {"kind", "join"},
                          {"nodes", 3},
                          {"hosts", Value::array()},
                          {"hostfile", ""},
                          {"address", ""},
                          {"port", 1234},
                          {"secret_file", ""},
                          {"head_works", nullptr},
                          {"network_interface", ""},
                          {"node_timeout", 5.0},
                          {"start_timeout", 300.0},
                          {"replace_timeout", 30.0}}));
  EXPECT_EQ(to_value(RunSettings{}).at("hang_timeout"), Value(nullptr));
}

TEST(RunSettings, KeepWhatTheBackendNeeds) {
  RunSettings settings;
  settings.backend = BackendNeeds{};
  EXPECT_EQ(run_settings_from(to_value(settings)), settings);
  settings.backend = {.environment = {{"OMP", "1"}},
                      .preload = {"torch"},
                      .backend_cls = "Greeter",
                      .services = {{"printer", {{"pages", 3}}}},
                      .replace_workers = true};
  const Value value = to_value(settings);
  EXPECT_EQ(run_settings_from(value), settings);
  EXPECT_EQ(value.at("backend"), (Value{{"environment", {{"OMP", "1"}}},
                                        {"preload", {"torch"}},
                                        {"backend_cls", "Greeter"},
                                        {"services", {"printer"}}}));
  EXPECT_EQ(value.at("printer"), (Value{{"pages", 3}}));
  EXPECT_THROW(run_settings_from({{"backend", 1}}), StorageError);
  EXPECT_THROW(run_settings_from({{"backend", {{"services", {"printer"}}}}}), StorageError);
}

TEST(RunSettings, NameAndPlaceAreNotAmongThem) {
  RunSettings settings;
  settings.run.name = "night";
  settings.run.storage_path = "/runs";
  EXPECT_EQ(run_settings_from(to_value(settings)), RunSettings{});
  EXPECT_EQ(run_settings_from({{"name", "night"}, {"storage_path", "/runs"}}), RunSettings{});
}

TEST(RunSettings, WhatIsMissingKeepsItsDefault) {
  const auto settings = run_settings_from({{"num_workers", 4}, {"what_a_later_release_knows", 1}});
  EXPECT_EQ(settings.scaling.num_workers, 4);
  EXPECT_EQ(settings.run, RunConfig{});
}

TEST(RunSettings, ARangeOfWorkersIsAList) {
  RunSettings elastic;
  elastic.scaling.num_workers = {2, 8};
  EXPECT_EQ(to_value(elastic).at("num_workers"), Value::array({2, 8}));
  EXPECT_EQ(run_settings_from(to_value(elastic)), elastic);
}

TEST(RunSettings, OtherTypesAreRefused) {
  for (const Value& wrong :
       {Value{{"num_workers", "4"}}, Value{{"num_workers", Value::array({2})}}, Value{{"num_to_keep", Value::object()}},
        Value{{"stop", {1, 2}}}, Value{{"verbose", nullptr}}, Value{{"hang_timeout", true}}})
    EXPECT_THROW(run_settings_from(wrong), StorageError) << wrong;
}

}  // namespace
}  // namespace lockstep::store
