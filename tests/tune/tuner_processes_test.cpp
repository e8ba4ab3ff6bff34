// Trials of functions that have a process each: reuse_workers = false.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "tuner_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;

int calls = 0;  // a global, as users have them

tune::TuneConfig fresh(tune::TuneConfig config = {}) {
  config.reuse_workers = false;
  return config;
}

TEST_F(TunerTest, AFreshProcessSeesNothingOfOtherTrials) {
  const auto train = [](const Value& config) {
    const int before = calls;
    calls += 1;
    ::setenv("LOCKSTEP_TEST_LEFT_BEHIND", "x", 1);
    return Value{{"loss", config["x"]}, {"before", before}, {"process", ::getpid()}};
  };
  const Value space = {{"x", tune::grid_search({1, 2, 3, 4, 5, 6})}};
  const ResultGrid grid = Tuner(train, options(space, fresh({.metric = "loss", .mode = "min"}))).fit();
  ASSERT_EQ(grid.num_terminated(), 6);
  std::set<int> processes{::getpid()};
  for (const Result& result : grid) {
    EXPECT_EQ(result.metrics["before"], 0);
    EXPECT_EQ(result.metrics["training_iteration"], 1);
    processes.insert(result.metrics["process"].get<int>());
  }
  EXPECT_EQ(processes.size(), 7);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(::getenv("LOCKSTEP_TEST_LEFT_BEHIND"), nullptr);
  EXPECT_EQ(grid.get_best_result().config["x"], 1);
}

TEST_F(TunerTest, ACrashIsTheTrialsOwn) {
  const auto train = [](const Value& config, Session& session) {
    session.report({{"loss", 1}}, Checkpoint::from_dict({{"step", 1}}));
    if (config["x"] == 1) std::abort();
    if (config["x"] == 2) std::exit(3);
    if (config["x"] == 3) ::kill(::getpid(), SIGKILL);
    if (config["x"] == 4) throw std::runtime_error("boom");
    session.report({{"loss", 2}});
  };
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({0, 1, 2, 3, 4})}}, fresh({.metric = "loss", .mode = "min"})))
          .fit();
  EXPECT_EQ(grid.num_errors(), 4);
  EXPECT_EQ(grid[0].metrics["loss"], 2);
  EXPECT_EQ(grid[0].state, "finished");
  EXPECT_THAT(grid[1].error, HasSubstr("ended by SIGABRT"));
  EXPECT_THAT(grid[2].error, HasSubstr("exit code 3"));
  EXPECT_THAT(grid[3].error, HasSubstr("ended by SIGKILL"));
  EXPECT_EQ(grid[4].error, "std::runtime_error: boom");
  EXPECT_EQ(grid[1].metrics["loss"], 1);
  const Result crashed = Result::from_path(grid[1].path);
  EXPECT_EQ(crashed.state, "failed");
  EXPECT_EQ(crashed.metrics["loss"], 1);
  ASSERT_TRUE(crashed.checkpoint);
  EXPECT_EQ(crashed.checkpoint->to_dict()["step"], 1);
}

TEST_F(TunerTest, ACrashedTrialGoesOnFromItsCheckpoint) {
  const auto train = [](Session& session) {
    int step = 0;
    if (const auto checkpoint = session.checkpoint()) step = checkpoint->to_dict()["step"].get<int>();
    while (step < 6) {
      ++step;
      session.report({{"step", step}, {"attempt", session.attempt()}}, Checkpoint::from_dict({{"step", step}}));
      if (step % 2 == 0 && session.attempt() < 2) ::kill(::getpid(), SIGKILL);
    }
  };
  auto given = options({}, fresh());
  given.run_config.failure.max_failures = 2;
  given.run_config.checkpoint.num_to_keep = 1;
  const ResultGrid grid = Tuner(train, given).fit();
  EXPECT_EQ(grid.num_errors(), 0);
  EXPECT_EQ(grid[0].metrics["step"], 6);
  EXPECT_EQ(grid[0].metrics["attempt"], 2);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 6);
  EXPECT_EQ(grid[0].checkpoint->to_dict()["step"], 6);
}

TEST_F(TunerTest, SchedulersReachFreshProcesses) {
  const auto train = [](const Value& config, Session& session) {
    for (int step = 1; step <= 50; ++step) session.report({{"loss", config["x"]}});
  };
  std::vector<Value> values;
  for (int x = 0; x < 8; ++x) values.emplace_back(x);
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search(values)}},
                           fresh({.metric = "loss",
                                  .mode = "min",
                                  .scheduler = tune::ASHAScheduler{.max_t = 16, .reduction_factor = 4},
                                  .max_concurrent_trials = 1})))
          .fit();
  EXPECT_EQ(grid.num_terminated(), 8);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 16);
  EXPECT_EQ(grid[7].metrics["training_iteration"], 1);
}

TEST_F(TunerTest, AFreshProcessIsEndedFromOutside) {
  const auto train = [](const Value& config) {
    if (config["x"] == 0) throw std::runtime_error("first");
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({1, 0})}}, fresh({.max_concurrent_trials = 2, .fail_fast = true})))
          .fit();
  EXPECT_EQ(grid.num_errors(), 1);
  EXPECT_EQ(grid[0].state, "finished");
}

TEST_F(TunerTest, AProcessThatIsEndedFromOutsideHasFinished) {
  const fs::path mark = place_ / "saved";
  const auto train = [&](const Value& config, Session& session) {
    if (config["x"] == 0) {
      while (!fs::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw std::runtime_error("first");
    }
    session.report({{"loss", 3}}, Checkpoint::from_dict({{"step", 1}}));
    fs::create_directories(mark);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({1, 0})}}, fresh({.max_concurrent_trials = 2, .fail_fast = true})))
          .fit();
  EXPECT_EQ(grid[0].state, "finished");
  const Result stored = Result::from_path(grid[0].path);
  EXPECT_EQ(stored.state, "finished");
  EXPECT_EQ(stored.error, "");
  EXPECT_TRUE(stored.failures.empty());
  EXPECT_EQ(stored.metrics["loss"], 3);
}

TEST_F(TunerTest, AProcessThatOnlyAsksIsToldThatTheExperimentEnds) {
  const fs::path mark = place_ / "asks";
  const auto train = [&](const Value& config, Session& session) {
    if (config["x"] == 0) {
      while (!fs::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (;;) session.report({{"loss", 1}});
    }
    fs::create_directories(mark);
    for (int i = 0; !session.should_stop(); ++i) {
      if (i == 20'000) throw std::runtime_error("it was not told");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const tune::Stop stop = tune::ExperimentPlateauStopper{.metric = "loss", .top = 2};
  const ResultGrid grid =
      Tuner(train, options({{"x", tune::grid_search({0, 1})}}, fresh({.max_concurrent_trials = 2, .stop = stop})))
          .fit();
  EXPECT_EQ(grid.num_errors(), 0) << grid[1].error;
  EXPECT_EQ(grid.num_terminated(), 2);
}

/// Lets the driver fork, as a callback of a user may.
class Forking final : public tune::Callback {
 public:
  void on_trial_start(const tune::TrialInfo&) override {
    child = ::fork();
    if (child != 0) return;
    for (const int fd : {0, 1, 2, unused}) ::close(fd);
    ::alarm(20);
    for (;;) ::pause();
  }
  pid_t child = -1;
  int unused = -1;  ///< the child closes it
};

TEST_F(TunerTest, AProcessThatTheDriverForkedDoesNotDelayItsEnd) {
  Forking forking;
  auto given = options({}, fresh());
  given.run_config.callbacks = {&forking};
  const ResultGrid grid = Tuner([](const Value&) { return Value{{"loss", 1}}; }, given).fit();
  EXPECT_EQ(grid.num_terminated(), 1);
  ASSERT_GT(forking.child, 0);
  EXPECT_EQ(::waitpid(forking.child, nullptr, WNOHANG), 0) << "fit() waited for the child's end";
  ::kill(forking.child, SIGKILL);
  ::waitpid(forking.child, nullptr, 0);
}

TEST_F(TunerTest, NothingOfATrialSurvivesAKilledDriver) {
  for (const bool driver_forks : {false, true}) {
    int alive[2];  // each process of the driver holds the end for writing
    ASSERT_EQ(::pipe2(alive, O_CLOEXEC), 0);
    const pid_t driver = ::fork();
    if (driver == 0) {
      Forking forking;
      forking.unused = alive[1];
      auto given = options({}, fresh());
      if (driver_forks) given.run_config.callbacks = {&forking};
      const auto train = [&](const Value&) {
        if (::fork() == 0) {
          [[maybe_unused]] const auto written = ::write(alive[1], "x", 1);
          ::alarm(60);
          for (;;) ::pause();
        }
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      };
      Tuner(train, given).fit();
      ::_exit(7);
    }
    ::close(alive[1]);
    char byte = 0;
    ASSERT_EQ(::read(alive[0], &byte, 1), 1);
    ::kill(driver, SIGKILL);
    ::waitpid(driver, nullptr, 0);
    pollfd end{alive[0], POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 10'000), 1) << "a process is left";
    ::close(alive[0]);
    fs::remove_all(place_ / "search");
  }
}

TEST_F(TunerTest, RestoredExperimentsKeepTheirProcesses) {
  const auto train = [](const Value& config) -> Value {
    if (config["x"] == 1 && !::getenv("LOCKSTEP_TEST_MENDED")) std::abort();
    return {{"loss", config["x"]}, {"process", ::getpid()}};
  };
  Tuner(train, options({{"x", tune::grid_search({0, 1})}}, fresh())).fit();
  ::setenv("LOCKSTEP_TEST_MENDED", "1", 1);
  const ResultGrid grid = Tuner::restore(place_ / "search", train, {.restart_errored = true}).fit();
  ::unsetenv("LOCKSTEP_TEST_MENDED");
  EXPECT_EQ(grid.num_errors(), 0);
  EXPECT_NE(grid[1].metrics["process"], ::getpid());
}

TEST_F(TunerTest, InterruptedProcessesGoOnLater) {
  const fs::path mark = place_ / "runs";
  const auto train = [&](Session& session) {
    int step = 0;
    if (const auto checkpoint = session.checkpoint()) step = checkpoint->to_dict()["step"].get<int>();
    while (step < 400) {
      ++step;
      session.report({{"step", step}}, Checkpoint::from_dict({{"step", step}}));
      if (step == 2) fs::create_directories(mark);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  auto given = options({}, fresh());
  given.run_config.checkpoint.num_to_keep = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);
    Tuner(train, given).fit();
    ::_exit(7);
  }
  while (!fs::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
  const ResultGrid before = ResultGrid::from_path(place_ / "search");
  EXPECT_LT(before[0].metrics["step"], 400);
  const ResultGrid grid = Tuner::restore(place_ / "search", train).fit();
  EXPECT_EQ(grid[0].metrics["step"], 400);
  EXPECT_EQ(grid[0].metrics["training_iteration"], 400);
}

}  // namespace
}  // namespace lockstep
