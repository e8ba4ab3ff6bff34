// Runs of C++ functions that end early, and workers that are interrupted alone: with real workers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kForEver = 1 << 30;

/// Says in "place" that its rank's stack was unwound.
struct Cleanup {
  fs::path place;
  ~Cleanup() { std::ofstream(place).put('x'); }
};

/// Rank 1 asks at step 3; nobody looks at should_stop().
void ask_to_end(Session& session) {
  const Cleanup cleanup{fs::path(session.config()["place"].get<std::string>()) / std::to_string(session.world_rank())};
  for (int step = 0; step < kForEver; ++step) {
    if (step == 3 && session.world_rank() == 1) session.request_stop();
    session.report({{"step", step}}, Checkpoint::from_dict({{"step", step}}));
  }
}
LOCKSTEP_TRAIN_FUNCTION(ask_to_end);

/// Ends by itself and has a last word.
void look_at_should_stop(Session& session) {
  int step = 0;
  for (; !session.should_stop(); ++step) {
    if (step == 3) session.request_stop();
    session.report({{"step", step}});
  }
  session.report({{"step", step}, {"last", true}}, Checkpoint::from_dict({{"step", step}}));
}
LOCKSTEP_TRAIN_FUNCTION(look_at_should_stop);

/// The loss falls for five reports.
void stop_falling(Session& session) {
  for (int step = 0; step < kForEver; ++step)
    session.report({{"step", step}, {"loss", std::max(5 - step, 0)}}, Checkpoint::from_dict({{"step", step}}));
}
LOCKSTEP_TRAIN_FUNCTION(stop_falling);

/// In attempt 0, rank "rank" gets a SIGINT of its own after its report.
void interrupt_one(Session& session) {
  const int first = session.checkpoint() ? session.checkpoint()->to_dict()["step"].get<int>() + 1 : 0;
  for (int step = first; step < 6; ++step) {
    session.report({{"step", step}}, Checkpoint::from_dict({{"step", step}}));
    session.barrier();
    if (session.attempt() == 0 && step == 2 && session.world_rank() == session.config()["rank"]) ::raise(SIGINT);
  }
}
LOCKSTEP_TRAIN_FUNCTION(interrupt_one);

class EndingTest : public testing::Test {
 protected:
  EndingTest() { fs::create_directories(place_ / "unwound"); }
  ~EndingTest() override { fs::remove_all(place_); }
  TrainerOptions options(Value config = Value::object()) const {
    TrainerOptions made;
    made.config = std::move(config);
    made.scaling.num_workers = 2;
    made.run.name = "run";
    made.run.storage_path = place_ / "runs";
    made.run.verbose = 0;
    return made;
  }

  fs::path place_ = fs::temp_directory_path() / ("lockstep-ending-" + std::to_string(::getpid()));
};

TEST_F(EndingTest, AnyRankMayAskAndStacksAreUnwound) {
  const Result result = DataParallelTrainer(ask_to_end, options({{"place", (place_ / "unwound").string()}})).fit();
  EXPECT_EQ(result.state, "finished");
  EXPECT_TRUE(result.failures.empty());
  EXPECT_GE(result.metrics["step"], 3);
  ASSERT_TRUE(result.checkpoint);
  EXPECT_EQ(result.checkpoint->to_dict()["step"], result.metrics["step"]);
  for (const char* rank : {"0", "1"}) EXPECT_TRUE(fs::exists(place_ / "unwound" / rank)) << rank;
}

TEST_F(EndingTest, AFunctionThatLooksEndsByItself) {
  const Result result = DataParallelTrainer(look_at_should_stop, options()).fit();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.metrics["last"], true);
  ASSERT_TRUE(result.checkpoint);
  EXPECT_EQ(result.checkpoint->to_dict()["step"], result.metrics["step"]);
}

TEST_F(EndingTest, EarlyStoppingEndsAtTheReport) {
  EarlyStopping early({.metric = "loss", .patience = 3});
  TrainerOptions given = options();
  given.run.callbacks = {&early};
  const Result result = DataParallelTrainer(stop_falling, given).fit();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.metrics["step"], 8);
  EXPECT_EQ(early.best(), 0);
  ASSERT_TRUE(result.checkpoint);
  EXPECT_EQ(result.checkpoint->to_dict()["step"], 8);
}

TEST_F(EndingTest, AnInterruptOfOneWorkerIsItsFailure) {
  for (const int rank : {0, 1}) {
    TrainerOptions given = options({{"rank", rank}});
    given.run.name = "run" + std::to_string(rank);
    try {
      DataParallelTrainer(interrupt_one, given).fit();
      ADD_FAILURE() << "the run is called finished";
    } catch (const TrainingError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("SIGINT"));
    }
    const Result before = Result::from_path(given.run.storage_path / given.run.name);
    EXPECT_EQ(before.state, "failed");
    ASSERT_FALSE(before.failures.empty());
    EXPECT_EQ(before.failures[0].rank, rank);
    const Result after = DataParallelTrainer::restore(before.path, interrupt_one).fit();
    EXPECT_EQ(after.state, "finished");
    EXPECT_EQ(after.metrics["step"], 5);
  }
}

TEST_F(EndingTest, AnInterruptOfOneWorkerCountsAsAFailure) {
  TrainerOptions given = options({{"rank", 1}});
  given.run.failure.max_failures = 1;
  const Result result = DataParallelTrainer(interrupt_one, given).fit();
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.metrics["step"], 5);
  EXPECT_FALSE(result.failures.empty());
}

}  // namespace
}  // namespace lockstep
