#include "store/settings.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>
#include <limits>

namespace lockstep::store {
namespace {

template <class Change>
std::string refusal(Change&& change) {
  TrainerOptions options;
  change(options);
  try {
    validate(options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Settings, DefaultsAreFine) {
  EXPECT_EQ(refusal([](TrainerOptions&) {}), "");
}

TEST(Settings, EveryFieldHasALine) {
  // A new field does not compile here until it is counted.
  [[maybe_unused]] const auto& [workers, gpu, resources, strategy, interval] = ScalingConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<ScalingConfig>::kFields)> == 5);
  [[maybe_unused]] const auto& [failures, nodes] = FailureConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<FailureConfig>::kFields)> == 2);
  [[maybe_unused]] const auto& [keep, attribute, order, all, every, busy] = CheckpointConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<CheckpointConfig>::kFields)> == 6);
  [[maybe_unused]] const auto& [name, path, failure, checkpoint, callbacks, verbose, console, hang, heartbeat, size,
                                stop, resumed, notice, grace, wait, engine] = RunConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<RunConfig>::kFields)> == 16 - 1);  // callbacks are code
  [[maybe_unused]] const auto& [kind, many, hosts, hostfile, address, port, secret_file, head_works, interface,
                                node_timeout, start_timeout, replace_timeout] = EngineConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<EngineConfig>::kFields)> == 12);
  [[maybe_unused]] const auto& [split, shuffle, seed, window, equal, prefetch, resume] = DataConfig{};
  static_assert(std::tuple_size_v<decltype(Settings<DataConfig>::kFields)> == 7);
}

TEST(Settings, RefusalsNameTheSettingTheValueAndTheRule) {
  EXPECT_EQ(refusal([](auto& o) { o.scaling.placement_strategy = "NEAR"; }),
            "[ScalingConfig] placement_strategy is 'NEAR'; it must be one of 'PACK', 'SPREAD', 'STRICT_PACK', "
            "'STRICT_SPREAD'");
  EXPECT_EQ(refusal([](auto& o) { o.run.failure.max_failures = -2; }),
            "[FailureConfig] max_failures is -2; it must be -1 (no limit), 0 or more");
  EXPECT_EQ(refusal([](auto& o) { o.run.checkpoint.score_order = "up"; }),
            "[CheckpointConfig] checkpoint_score_order is 'up'; it must be one of 'max', 'min'");
  EXPECT_EQ(refusal([](auto& o) { o.run.log_to_console = "rank1"; }),
            "[RunConfig] log_to_console is 'rank1'; it must be 'rank0', 'all' or 'none'");
  EXPECT_EQ(refusal([](auto& o) { o.run.log_to_console = "0,2"; }), "");  // for the command line
  EXPECT_EQ(refusal([](auto& o) { o.run.verbose = -1; }), "[RunConfig] verbose is -1; it must be an int of at least 0");
}

TEST(Settings, EnginesAreKnownAndHostsBelongToSsh) {
  EXPECT_EQ(refusal([](auto& o) { o.run.engine.kind = "pbs"; }),
            "[EngineConfig] kind is 'pbs'; it must be one of 'auto', 'local', 'slurm', 'ray', 'ssh', 'join'");
  EXPECT_EQ(refusal([](auto& o) { o.run.engine.port = 70000; }),
            "[EngineConfig] port is 70000; it must be a port from 1 to 65535, or None");
  EXPECT_EQ(refusal([](auto& o) {
              o.run.engine.kind = "slurm";
              o.run.engine.hosts = {"a"};
            }),
            "[EngineConfig] hosts is ['a']; only the engine 'ssh' has hosts");
}

TEST(Settings, RunNamesAreOnePathComponent) {
  EXPECT_EQ(refusal([](auto& o) { o.run.name = "../x"; }),
            "[RunConfig] name is '../x'; it contains '/'; choose one path component such as 'digits-1'");
  EXPECT_NE(refusal([](auto& o) { o.run.name = "a\nb"; }).find("name is 'a\\x0ab'"), std::string::npos);
}

TEST(Settings, TimeoutsArePositiveAndFinite) {
  using Seconds = std::chrono::duration<double>;
  EXPECT_EQ(refusal([](auto& o) { o.run.hang_timeout = Seconds(0); }),
            "[RunConfig] hang_timeout is 0; it must be a positive number of seconds or a timedelta");
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_NE(refusal([&](auto& o) { o.run.heartbeat_timeout = Seconds(wrong); }), "") << wrong;
}

TEST(Settings, ReportsHaveABound) {
  EXPECT_EQ(refusal([](auto& o) { o.run.max_report_size = 1 << 30; }), "");
  EXPECT_EQ(refusal([](auto& o) { o.run.max_report_size = (1 << 30) + 1; }),
            "[RunConfig] max_report_size is 1073741825; it must be at most 2**30 bytes");
}

TEST(Settings, AmountsOfResources) {
  const auto of = [](std::map<std::string, double> amounts, bool use_gpu = false) {
    return refusal([&](auto& o) {
      o.scaling.use_gpu = use_gpu;
      o.scaling.resources_per_worker = amounts;
    });
  };
  EXPECT_EQ(of({{"CPU", -1}}),
            "[ScalingConfig] resources_per_worker is {'CPU': -1}; the amount of 'CPU' must be a number of at least 0");
  EXPECT_NE(of({{"CPU", std::nan("")}}), "");
  EXPECT_NE(of({{"", 1}}), "");
  EXPECT_EQ(of({{"CPU", 0.5}, {"fast", 2}}), "");
  EXPECT_EQ(of({{"GPU", 0.5}}, true), "");
  EXPECT_EQ(of({{"GPU", 1.5}}, true),
            "[ScalingConfig] resources_per_worker is {'GPU': 1.5}; the amount of 'GPU' must be a whole number, or less "
            "than 1");
  EXPECT_EQ(of({{"GPU", 1}}),
            "[ScalingConfig] resources_per_worker is {'GPU': 1}; its GPU entry contradicts use_gpu=False");
  EXPECT_EQ(of({{"GPU", 0}}, true),
            "[ScalingConfig] resources_per_worker is {'GPU': 0}; its GPU entry contradicts use_gpu=True");
}

TEST(Settings, StopNamesMetricsAndNumbers) {
  EXPECT_EQ(refusal([](auto& o) { o.run.stop = {{"accuracy", 0.9}}; }), "");
  EXPECT_EQ(refusal([](auto& o) {
              o.run.stop = {{"accuracy", std::nan("")}};
            }),
            "[RunConfig] stop is {'accuracy': nan}; the value of 'accuracy' must be a number");
  EXPECT_NE(refusal([](auto& o) { o.run.stop = {{"", 1}}; }), "");
}

}  // namespace
}  // namespace lockstep::store
