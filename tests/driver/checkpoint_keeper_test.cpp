#include "driver/checkpoint_keeper.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <fstream>
#include <functional>

#include "../store/scratch.h"
#include "driver/validations.h"
#include "store/hash.h"
#include "sys/faulty_files.h"

namespace lockstep::driver {
namespace {

namespace fs = std::filesystem;

class CheckpointKeeperTest : public ::testing::Test {
 protected:
  /// What a worker says when it has written `text` to `directory`/x below the run directory.
  Commit written(const std::string& directory, const Value& metrics = Value::object()) {
    const std::string text = "hello";
    fs::create_directories(run_.path() / directory);
    std::ofstream(run_.path() / directory / "x") << text;
    CheckpointPart part;
    part.written.partial = directory;
    part.written.files.push_back(
        {"x", static_cast<std::int64_t>(text.size()), store::hash_of(std::as_bytes(std::span(text)))});
    return {.report = 0, .parts = {part}, .metrics = metrics};
  }

  Scratch scratch_;
  store::RunDirectory run_{scratch_ / "run"};
  CheckpointKeeper keeper_{run_, CheckpointConfig{}, [](const std::string&) {}};
};

TEST_F(CheckpointKeeperTest, TakesTheNameThatWorkersGave) {
  for (const char* name : {"checkpoint_000000.partial", "checkpoint_000000_report_000007.partial"}) {
    const int seq = keeper_.commit(written(name), 0, 1);
    EXPECT_NO_THROW(keeper_.at(seq).first.verify());
    EXPECT_FALSE(fs::exists(run_.path() / name));
  }
  EXPECT_EQ(run_.checkpoints(), (std::vector{0, 1}));
}

TEST_F(CheckpointKeeperTest, OneFileNameFromTwoRanksIsAnErrorThatNamesBoth) {
  Commit commit = written("checkpoint_000000.partial");
  commit.parts.push_back(commit.parts.front());
  commit.parts.back().rank = 1;
  CheckpointConfig in_memory;
  in_memory.num_to_keep = 0;
  CheckpointKeeper other(run_, in_memory, [](const std::string&) {});
  Commit contents = commit;
  for (CheckpointPart& part : contents.parts) part.written.contents.emplace_back("x", Bytes{1});
  for (const auto& attempt : {std::function<void()>([&] { keeper_.commit(commit, 0, 2); }),
                              std::function<void()>([&] { other.commit(contents, 0, 2); })}) {
    try {
      attempt();
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("ranks 0 and 1 both wrote \"x\""), std::string::npos) << error.what();
    }
  }
}

TEST_F(CheckpointKeeperTest, RefusesNamesOutsideTheRun) {
  for (const char* name : {"../outside.partial", "logs/x.partial", "checkpoint_000005.partial", "logs", ""}) {
    EXPECT_THROW(keeper_.commit(written(name), 0, 1), StorageError) << name;
    EXPECT_TRUE(fs::exists(run_.path() / name / "x")) << name;
  }
  EXPECT_TRUE(run_.checkpoints().empty());
  EXPECT_EQ(keeper_.next_seq(), 0);
}

TEST_F(CheckpointKeeperTest, OnlyWhatCanBeReadIsPassedOver) {
  for (const char* name : {"checkpoint_000000.partial", "checkpoint_000001.partial"})
    keeper_.commit(written(name), 0, 1);
  sys::FaultyFiles count(sys::files());
  store::RunDirectory counted(run_.path(), count);
  CheckpointKeeper(counted, CheckpointConfig{}, [](const std::string&) {}).begin_attempt(1);
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, EMFILE});
    store::RunDirectory run(run_.path(), faulty);
    CheckpointKeeper keeper(run, CheckpointConfig{}, [](const std::string& text) { ADD_FAILURE() << text; });
    EXPECT_THROW(keeper.begin_attempt(1), StorageError) << k;
    keeper.retain();
    keeper.begin_attempt(1);
    EXPECT_EQ(keeper.latest()->path(), run_.checkpoint_path(1)) << k;
  }
}

TEST_F(CheckpointKeeperTest, BeginsAnewOnlyWhenItMay) {
  keeper_.commit(written("checkpoint_000000.partial"), 0, 1);
  std::ofstream(run_.checkpoint_path(0) / "x") << "other";
  EXPECT_THROW(keeper_.begin_attempt(1), store::NoUsableCheckpoint);
  keeper_.begin_attempt(1, true);
  EXPECT_FALSE(keeper_.latest());
}

TEST_F(CheckpointKeeperTest, WhatACheckFindsJoinsTheMetricsTheScoreAndTheManifest) {
  CheckpointConfig config;
  config.score_attribute = "accuracy";
  config.num_to_keep = 1;
  std::vector<std::string> warnings;
  CheckpointKeeper keeper(run_, config, [&](const std::string& text) { warnings.push_back(text); });
  fs::create_directories(run_.path());
  keeper.load();
  for (const char* name : {"checkpoint_000000.partial", "checkpoint_000001.partial", "checkpoint_000002.partial"}) {
    Commit commit = written(name, {{"loss", 1.0}});
    std::ofstream(run_.path() / name / kValidationName) << "{}";
    commit.parts.front().written.files.push_back(
        {kValidationName, 2, store::hash_of(std::as_bytes(std::span("{}", 2)))});
    keeper.commit(commit, 0, 1);
    keeper.retain({0, 1, 2});
  }
  EXPECT_EQ(run_.checkpoints(), (std::vector{0, 1, 2}));
  EXPECT_TRUE(warnings.empty());
  for (const auto& [seq, accuracy] : {std::pair{1, 0.9}, std::pair{0, 0.5}, std::pair{2, 0.1}}) {
    const auto checked = keeper.add_metrics(seq, {{"accuracy", accuracy}});
    ASSERT_TRUE(checked);
    EXPECT_EQ(checked->second, (Value{{"loss", 1.0}, {"accuracy", accuracy}}));
    EXPECT_NO_THROW(checked->first.verify());
  }
  keeper.retain();
  EXPECT_EQ(run_.checkpoints(), (std::vector{1, 2}));
  ASSERT_EQ(keeper.best().size(), 1u);
  EXPECT_EQ(keeper.best()[0].second["accuracy"], 0.9);
  EXPECT_TRUE(run_.checkpoint(1).manifest.validated);
  EXPECT_EQ(run_.checkpoint(1).manifest.metrics, (Value{{"loss", 1.0}, {"accuracy", 0.9}}));
  EXPECT_FALSE(keeper.add_metrics(0, {{"accuracy", 1.0}}));
}

TEST_F(CheckpointKeeperTest, WarnsOnceOfAScoreThatIsNotThere) {
  std::vector<std::string> warnings;
  CheckpointConfig config;
  config.score_attribute = "val_los";
  CheckpointKeeper keeper(run_, config, [&](const std::string& text) { warnings.push_back(text); });
  const Value metrics{{"loss", 1.0}, {"val_loss", 2.0}, {"word", "x"}, {"training_iteration", 3}};
  keeper.commit(written("checkpoint_000000.partial", metrics), 0, 1);
  keeper.commit(written("checkpoint_000001.partial", metrics), 0, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("\"val_los\""), std::string::npos);
  EXPECT_NE(warnings[0].find("There are: val_loss, loss"), std::string::npos) << warnings[0];
}

}  // namespace
}  // namespace lockstep::driver
