#include "train/engine_choice.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::train {
namespace {

EngineConfig of_kind(const std::string& kind) {
  EngineConfig config;
  config.kind = kind;
  return config;
}

TEST(EngineChoice, AutoIsThisMachineOrTheAllocation) {
  EXPECT_EQ(chosen_engine({}, {}).kind, "local");
  EXPECT_EQ(chosen_engine({}, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}}).kind, "local");
  EXPECT_EQ(chosen_engine({}, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "4"}}).kind, "slurm");
  EXPECT_EQ(chosen_engine({}, {{"SLURM_NNODES", "4"}}).kind, "local") << "no job";
  EXPECT_EQ(chosen_engine(of_kind("local"), {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "4"}}).kind, "local");
}

TEST(EngineChoice, AProgramThatSrunStartsManyTimesIsRefused) {
  const std::map<std::string, std::string> tasks{
      {"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_THROW(chosen_engine({}, tasks), ConfigError);
  EXPECT_EQ(chosen_engine(of_kind("local"), tasks).kind, "local") << "on purpose";
}

TEST(EngineChoice, WorkersStartNoEngine) {
  EXPECT_EQ(chosen_engine({}, {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "4"}, {"LOCKSTEP_AGENT_ID", "x"}}).kind,
            "local");
  EXPECT_EQ(chosen_engine({}, {{"LOCKSTEP_ENGINE", "join"}, {"LOCKSTEP_AGENT_ID", "x"}}).kind, "local");
}

TEST(EngineChoice, TheEnvironmentHasTheKindAndItsOptions) {
  const auto env = std::map<std::string, std::string>{
      {"LOCKSTEP_ENGINE", "ssh"}, {"LOCKSTEP_ENGINE_OPTIONS", R"({"hosts": ["a:8"], "node_timeout": 2, "nodes": 3})"}};
  const EngineConfig chosen = chosen_engine({}, env);
  EXPECT_EQ(chosen.kind, "ssh");
  EXPECT_EQ(chosen.hosts, (std::vector<std::string>{"a:8"}));
  EXPECT_EQ(chosen.node_timeout.count(), 2);
  EngineConfig own = of_kind("ssh");
  own.nodes = 5;
  EXPECT_EQ(chosen_engine(own, env).nodes, 5) << "the script's own wins";
  EXPECT_EQ(chosen_engine(own, env).hosts.size(), 1U);
  EXPECT_TRUE(chosen_engine(of_kind("join"), env).hosts.empty()) << "options of another engine";
}

TEST(EngineChoice, NonsenseIsRefused) {
  EXPECT_THROW(chosen_engine({}, {{"LOCKSTEP_ENGINE", "pbs"}}), ConfigError);
  EXPECT_THROW(chosen_engine({}, {{"LOCKSTEP_ENGINE_OPTIONS", "nodes=4"}}), ConfigError);
  EXPECT_THROW(chosen_engine({}, {{"LOCKSTEP_ENGINE", "join"}, {"LOCKSTEP_ENGINE_OPTIONS", R"({"nodes": "x"})"}}),
               ConfigError);
  EXPECT_THROW(chosen_engine({}, {{"LOCKSTEP_ENGINE", "join"}, {"LOCKSTEP_ENGINE_OPTIONS", R"({"port": 0})"}}),
               ConfigError);
}

}  // namespace
}  // namespace lockstep::train
