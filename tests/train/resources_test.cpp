#include "train/resources.h"

#include <gtest/gtest.h>

#include <lockstep/error.h>

namespace lockstep::train {
namespace {

NodeResources node(double cpus, int gpus) {
  NodeResources made;
  made.amounts = {{"CPU", cpus}, {"GPU", gpus}};
  for (int i = 0; i < gpus; ++i) made.gpu_ids.push_back(std::to_string(i));
  return made;
}

ScalingConfig scaling(int workers, bool use_gpu = false, std::map<std::string, double> resources = {}) {
  ScalingConfig config;
  config.num_workers = workers;
  config.use_gpu = use_gpu;
  config.resources_per_worker = std::move(resources);
  return config;
}

TEST(Resources, EveryWorkerGetsAGpuOfItsOwn) {
  const auto given = assign(scaling(3, true), node(8, 4), {});
  EXPECT_EQ(given.rank_env[0].at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(given.rank_env[2].at("CUDA_VISIBLE_DEVICES"), "2");
}

TEST(Resources, GpuIdsAreThoseThatTheUserSees) {
  NodeResources some = node(8, 2);
  some.gpu_ids = {"5", "GPU-abc"};
  EXPECT_EQ(assign(scaling(2, true), some, {}).rank_env[1].at("CUDA_VISIBLE_DEVICES"), "GPU-abc");
}

TEST(Resources, SeveralGpusPerWorker) {
  const auto given = assign(scaling(2, true, {{"GPU", 2}}), node(8, 4), {});
  EXPECT_EQ(given.rank_env[0].at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(given.rank_env[1].at("CUDA_VISIBLE_DEVICES"), "2,3");
}

TEST(Resources, FractionsShareAGpu) {
  const auto given = assign(scaling(4, true, {{"GPU", 0.5}}), node(8, 2), {});
  EXPECT_EQ(given.rank_env[1].at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(given.rank_env[2].at("CUDA_VISIBLE_DEVICES"), "1");
}

TEST(Resources, FractionsThatDoNotFitBesideEachOtherAreRefused) {
  EXPECT_THROW(assign(scaling(3, true, {{"GPU", 0.6}}), node(8, 2), {}), ConfigError);
}

TEST(Resources, GpusAreNeverGivenTwice) {
  try {
    assign(scaling(4, true), node(8, 2), {});
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("need 4 GPU"), std::string::npos) << text;
    EXPECT_NE(text.find("has 2"), std::string::npos) << text;
  }
}

TEST(Resources, AskedCpusAreNeverGivenTwice) {
  EXPECT_THROW(assign(scaling(3, false, {{"CPU", 1}}), node(2, 0), {}), ConfigError);
  EXPECT_NO_THROW(assign(scaling(2, false, {{"CPU", 1}}), node(2, 0), {}));
}

TEST(Resources, UnknownResourcesAreNotThere) {
  EXPECT_THROW(assign(scaling(1, false, {{"licence", 1}}), node(2, 0), {}), ConfigError);
}

TEST(Resources, MoreWorkersThanCoresIsFineAndSaid) {
  const auto given = assign(scaling(4), node(2, 0), {});
  ASSERT_EQ(given.notes.size(), 1U);
  EXPECT_EQ(given.notes[0], "4 workers share 2 cores");
  EXPECT_EQ(given.rank_env[3].at("OMP_NUM_THREADS"), "1");
}

TEST(Resources, ThreadsAreCoresByWorkersUnlessTheUserSetThem) {
  EXPECT_EQ(assign(scaling(2), node(8, 0), {}).rank_env[0].at("OMP_NUM_THREADS"), "4");
  EXPECT_FALSE(assign(scaling(2), node(8, 0), {{"OMP_NUM_THREADS", "3"}}).rank_env[0].contains("OMP_NUM_THREADS"));
}

}  // namespace
}  // namespace lockstep::train
