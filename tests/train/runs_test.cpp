// Several runs at once, and handles: with real workers.

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>
#include <thread>

#include "store/stop_request.h"
#include "train/launch.h"
#include "train/resource_pool.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Reports "steps" times, with a checkpoint each; for ever without.
void count_steps(Session& session) {
  const int steps = session.config().value("steps", 1 << 30);
  for (int step = 0; step < steps && !session.stopping(); ++step) {
    session.report({{"step", step}}, Checkpoint::from_dict({{"step", step}}));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
LOCKSTEP_TRAIN_FUNCTION(count_steps);

/// Reports the steps up to "steps" with a checkpoint each, and continues after the newest.
void go_on_counting(Session& session) {
  const auto checkpoint = session.checkpoint();
  const int done = checkpoint ? checkpoint->to_dict()["step"].get<int>() : 0;
  for (int step = done + 1; step <= session.config()["steps"]; ++step) {
    session.report({{"step", step}, {"size", session.world_size()}}, Checkpoint::from_dict({{"step", step}}));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
LOCKSTEP_TRAIN_FUNCTION(go_on_counting);

/// Ends when another run is there too.
void meet_another(Session& session) {
  const fs::path place = session.config()["place"].get<std::string>();
  std::ofstream(place / session.config()["me"].get<std::string>()).put('x');
  for (int i = 0; i < 6000; ++i) {
    if (std::distance(fs::directory_iterator(place), fs::directory_iterator()) >= 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("the other run does not run at the same time");
}
LOCKSTEP_TRAIN_FUNCTION(meet_another);

void always_fail(Session&) { throw std::runtime_error("boom"); }
LOCKSTEP_TRAIN_FUNCTION(always_fail);

class RunsTest : public testing::Test {
 protected:
  RunsTest() { fs::create_directories(place_ / "met"); }
  ~RunsTest() override {
    EXPECT_EQ(train::process_resources().leases(), 0);
    fs::remove_all(place_);
  }
  TrainerOptions options(Value config = Value::object(), const std::string& name = "") const {
    TrainerOptions made;
    made.config = std::move(config);
    made.scaling.num_workers = 2;
    made.run.name = name;
    made.run.storage_path = place_ / "runs";
    made.run.verbose = 0;
    return made;
  }

  fs::path place_ = fs::temp_directory_path() / ("lockstep-runs-" + std::to_string(::getpid()));
};

TEST_F(RunsTest, ThreadsRunSideBySide) {
  std::vector<std::future<Result>> runs;
  for (const char* me : {"a", "b"})
    runs.push_back(std::async(std::launch::async, [&, me] {
      auto given = options({{"place", (place_ / "met").string()}, {"me", me}}, me);
      given.scaling.num_workers = 1;
      return DataParallelTrainer(meet_another, given).fit();
    }));
  for (auto& run : runs) EXPECT_EQ(run.get().state, "finished");
}

TEST_F(RunsTest, AnElasticRunGrowsWhenThereIsRoomAndRepeatsNothing) {
  train::declare_resources({{"slot", 1}});
  auto given = options({{"steps", 300}}, "elastic");
  given.scaling = {.num_workers = {1, 3}, .resources_per_worker = {{"slot", 1}}};
  const RunHandle handle = DataParallelTrainer(go_on_counting, given).start();
  std::vector<int> steps, all(300);
  std::iota(all.begin(), all.end(), 1);
  for (const Value& metrics : handle) {
    if (steps.empty()) train::declare_resources({{"slot", 3}});
    steps.push_back(metrics["step"]);
  }
  const Result result = handle.wait();
  train::declare_resources({});
  EXPECT_EQ(result.world_sizes, (std::vector{1, 3}));
  EXPECT_EQ(result.metrics["size"], 3);
  EXPECT_TRUE(result.failures.empty());
  EXPECT_EQ(steps, all);
}

TEST_F(RunsTest, AHandleGivesReportsAndTheResult) {
  const RunHandle handle = DataParallelTrainer(count_steps, options({{"steps", 4}}, "mine")).start();
  EXPECT_EQ(handle.name(), "mine");
  EXPECT_EQ(handle.path(), place_ / "runs" / "mine");
  std::vector<int> seen;
  for (const Value& metrics : handle) seen.push_back(metrics["step"]);
  EXPECT_EQ(seen, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(handle.wait().state, "finished");
  EXPECT_EQ(handle.state(), "finished");
  EXPECT_EQ(handle.metrics()["step"], 3);
  EXPECT_EQ(handle.wait(std::chrono::seconds(0)).metrics["step"], 3);
}

TEST_F(RunsTest, AStopKeepsTheNewestCheckpoint) {
  const RunHandle handle = DataParallelTrainer(count_steps, options()).start();
  EXPECT_THROW(handle.wait(std::chrono::milliseconds(50)), TimeoutError);
  handle.next();
  EXPECT_EQ(handle.state(), "running");
  handle.stop();
  const Result result = handle.wait();
  EXPECT_EQ(result.state, "stopped");
  EXPECT_TRUE(result.failures.empty());
  ASSERT_TRUE(result.checkpoint);
  EXPECT_EQ(result.checkpoint->to_dict()["step"], result.metrics["step"]);
  EXPECT_EQ(Result::from_path(handle.path()).state, "stopped");
}

TEST_F(RunsTest, WaitThrowsWhatFitWould) {
  const RunHandle handle = DataParallelTrainer(always_fail, options()).start();
  EXPECT_THROW(handle.wait(), TrainingError);
  EXPECT_EQ(handle.state(), "failed");
  EXPECT_FALSE(handle.next());
  EXPECT_THROW(DataParallelTrainer(always_fail, options(Value::object(), handle.name())).start(), ConfigError);
}

std::atomic<int> interrupts = 0;

TEST_F(RunsTest, CtrlCEndsAllOfThem) {
  const auto before = std::signal(SIGINT, [](int) { ++interrupts; });
  std::vector<RunHandle> handles;
  for (int i = 0; i < 2; ++i) handles.push_back(DataParallelTrainer(count_steps, options()).start());
  for (const auto& handle : handles) EXPECT_TRUE(handle.next());
  raise(SIGINT);
  for (const auto& handle : handles) EXPECT_EQ(handle.wait().state, "interrupted");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (interrupts == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(interrupts, 1) << "the handler before gets it once, when the last run is over";
  std::signal(SIGINT, before);
}

/// How a fork of this process ends that runs `body`.
int status_of_fork(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(RunsTest, CtrlCEndsTheProgramBeforeWaitReturns) {
  for (int i = 0; i < 5; ++i) {
    const int status = status_of_fork([&] {
      std::signal(SIGINT, SIG_DFL);
      const RunHandle handle = DataParallelTrainer(count_steps, options()).start();
      handle.next();
      raise(SIGINT);
      handle.wait();
      std::exit(0);
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  }
}

TEST_F(RunsTest, AForkStopsItsRunsWhenItExits) {
  DataParallelTrainer(count_steps, options({{"steps", 1}}, "first")).start().wait();
  const int status = status_of_fork([&] {
    const RunHandle handle = DataParallelTrainer(count_steps, options(Value::object(), "second")).start();
    handle.next();
    std::exit(0);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Result::from_path(place_ / "runs" / "second").state, "stopped");
}

struct Exiting : Callback {
  void on_result(const Value&) override { std::exit(3); }
};

TEST_F(RunsTest, ACallbackMayExit) {
  const int status = status_of_fork([&] {
    Exiting exiting;
    auto given = options();
    given.run.callbacks = {&exiting};
    DataParallelTrainer(count_steps, given).start().wait();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

/// Waits for its own run, once it knows the handle.
struct WaitsForItself : Callback {
  void on_result(const Value&) override {
    if (!errors.empty()) return;
    const RunHandle handle = known.get_future().get();
    for (const std::function<void()>& wait : {std::function<void()>([&] { handle.wait(); }), {[&] { handle.next(); }}})
      try {
        wait();
      } catch (const ConfigError& error) {
        errors.emplace_back(error.what());
      }
    request_stop();
  }
  std::promise<RunHandle> known;
  std::vector<std::string> errors;
};

TEST_F(RunsTest, ARunDoesNotWaitForItself) {
  WaitsForItself callback;
  auto given = options(Value::object(), "mine");
  given.run.callbacks = {&callback};
  const RunHandle handle = DataParallelTrainer(count_steps, given).start();
  callback.known.set_value(handle);
  EXPECT_EQ(handle.wait(std::chrono::seconds(60)).state, "finished");
  const std::string message = "run \"mine\" cannot end while its own callback waits for it";
  EXPECT_EQ(callback.errors, (std::vector{"[wait] " + message, "[iterating] " + message}));
}

TEST_F(RunsTest, AForkSeesTheRunButDoesNotTouchIt) {
  const RunHandle handle = DataParallelTrainer(count_steps, options()).start();
  handle.next();
  const int status = status_of_fork([&] {
    handle.stop();
    try {
      handle.wait();
    } catch (const ConfigError&) {
      _exit(handle.state() == "running" ? 0 : 1);
    }
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(handle.next());
  EXPECT_EQ(handle.state(), "running");
  handle.stop();
  EXPECT_EQ(handle.wait().state, "stopped");
}

TEST_F(RunsTest, AStopRequestEndsOneRunAlone) {
  const RunHandle first = DataParallelTrainer(count_steps, options(Value::object(), "first")).start();
  const RunHandle second = DataParallelTrainer(count_steps, options(Value::object(), "second")).start();
  first.next();
  second.next();
  store::request_stop(first.path(), store::DriverProcess::current());
  const Result result = first.wait(std::chrono::seconds(30));
  EXPECT_EQ(result.state, "interrupted");
  EXPECT_TRUE(result.checkpoint);
  EXPECT_FALSE(fs::exists(first.path() / store::kStopRequest));
  EXPECT_EQ(second.state(), "running");
  second.stop();
  EXPECT_EQ(second.wait().state, "stopped");
}

TEST_F(RunsTest, AProgramThatIsStartedAgainContinuesItsRun) {
  TrainerOptions same = options(Value::object(), "again");
  same.run.resume = "auto";
  const RunHandle first = DataParallelTrainer(count_steps, same).start();
  while (!first.metrics().contains("step") || first.metrics()["step"] < 3) first.next();
  first.stop();
  const Result before = first.wait();
  ASSERT_TRUE(before.checkpoint);
  const RunHandle second = DataParallelTrainer(count_steps, same).start();
  EXPECT_EQ(second.path(), before.path);
  second.next();
  EXPECT_GT(second.metrics().at("training_iteration"), before.checkpoint->to_dict().at("step"));
  second.stop();
  EXPECT_EQ(second.wait().state, "stopped");
}

/// There is one licence.
class WaitingRunsTest : public RunsTest {
 protected:
  WaitingRunsTest() { train::declare_resources({{"licence", 1}}); }
  ~WaitingRunsTest() override { train::declare_resources({}); }
  TrainerOptions licensed(const std::string& name) const {
    TrainerOptions made = options(Value::object(), name);
    made.scaling.num_workers = 1;
    made.scaling.resources_per_worker = {{"licence", 1}};
    return made;
  }
};

TEST_F(WaitingRunsTest, ARestoredRunThatDidNotBeginHasWhatItHad) {
  const RunHandle stopped = DataParallelTrainer(count_steps, licensed("stopped")).start();
  stopped.next();
  stopped.stop();
  const Result before = stopped.wait();
  const RunHandle first = DataParallelTrainer(count_steps, licensed("first")).start();
  first.next();
  const RunHandle waiting = DataParallelTrainer::restore(stopped.path(), count_steps).start();
  while (train::process_resources().waiting() == 0) std::this_thread::yield();
  waiting.stop();
  const Result result = waiting.wait();
  EXPECT_EQ(result.state, "stopped");
  EXPECT_EQ(result.metrics["step"], before.metrics["step"]);
  ASSERT_TRUE(result.checkpoint);
  EXPECT_EQ(result.checkpoint->to_dict()["step"], before.checkpoint->to_dict()["step"]);
  first.stop();
  first.wait();
}

TEST_F(WaitingRunsTest, TwoRunsWithOneName) {
  const RunHandle first = DataParallelTrainer(count_steps, licensed("first")).start();
  first.next();
  const RunHandle waiting = DataParallelTrainer(count_steps, licensed("mine")).start();
  try {
    DataParallelTrainer(count_steps, licensed("mine")).start();
    ADD_FAILURE() << "both have the directory";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("used by another run of this process"), std::string::npos) << error.what();
  }
  waiting.stop();
  EXPECT_EQ(waiting.wait().state, "stopped");
  first.stop();
  first.wait();
  const RunHandle again = DataParallelTrainer(count_steps, licensed("mine")).start();
  again.next();
  again.stop();
  EXPECT_EQ(again.wait().state, "stopped") << "the name is free again";
}

/// Starts a run that needs what its own run has, and waits for it.
struct StartsAnother : Callback {
  explicit StartsAnother(TrainerOptions given) : given(std::move(given)) {}
  void on_result(const Value&) override {
    if (!error.empty()) return;
    try {
      DataParallelTrainer(count_steps, given).start().wait();
      error = "it ran";
    } catch (const ConfigError& thrown) {
      error = thrown.what();
    }
    request_stop();
  }
  TrainerOptions given;
  std::string error;
};

TEST_F(WaitingRunsTest, ARunThatACallbackStartsDoesNotWaitForItsRun) {
  StartsAnother callback(licensed("inner"));
  auto outer = licensed("outer");
  outer.run.callbacks = {&callback};
  EXPECT_EQ(DataParallelTrainer(count_steps, outer).fit().state, "finished");
  EXPECT_NE(callback.error.find("started by a callback of run \"outer\""), std::string::npos) << callback.error;
}

}  // namespace
}  // namespace lockstep
