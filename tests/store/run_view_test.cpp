#include "store/run_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/clock.h"
#include "base/json.h"
#include "scratch.h"
#include "store/part_writer.h"
#include "store/run_directory.h"
#include "sys/process.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Lets something happen after the first file has been read.
class EventfulFiles final : public sys::PosixFiles {
 public:
  explicit EventfulFiles(std::function<void()> event) : event_(std::move(event)) {}
  void close(sys::OpenFile file) override {
    sys::PosixFiles::close(std::move(file));
    if (const auto event = std::exchange(event_, nullptr)) event();
  }

 private:
  std::function<void()> event_;
};

class RunViewTest : public testing::Test {
 protected:
  Scratch scratch_;
  RunDirectory run_{scratch_ / "run"};
  RunRecord record_;

  void SetUp() override {
    run_.create();
    record_.name = "run";
    record_.created = 1000;
    record_.sign(2000);
  }

  /// The run as it is when record_ is in its run.json.
  RunView view(OddFields odd = OddFields::refuse) {
    run_.write_run_json(record_.to_value());
    return RunView::read(run_.path(), odd);
  }

  void commit(int seq, double loss, const std::string& data = "{}") {
    const std::vector<MemoryFile> files = {{"data.json", bytes_of(data)}};
    Manifest manifest;
    manifest.seq = seq;
    manifest.ranks = {0};
    manifest.metrics = {{"validation", {{"loss", loss}}}};
    manifest.files = PartWriter(sys::files(), run_.path() / RunDirectory::partial_name(seq)).write_files(files);
    run_.commit(RunDirectory::partial_name(seq), manifest);
  }
};

TEST_F(RunViewTest, ARunThatEndedNeedsNoDriver) {
  record_.driver = {};
  for (const char* state : {"finished", "failed", "interrupted", "stopped"}) {
    record_.state = state;
    EXPECT_EQ(view().driver, DriverState::ended);
    EXPECT_EQ(view().state(), state);
  }
}

TEST_F(RunViewTest, ADriverHoldsItsRun) {
  EXPECT_EQ(view().driver, DriverState::left) << "this process runs, but does not drive it";
  EXPECT_EQ(view().state(), "died");
  run_.lock();
  EXPECT_EQ(view().driver, DriverState::alive);
  EXPECT_EQ(view().state(), "running");
}

TEST_F(RunViewTest, AProcessIsNamedByPidAndStart) {
  run_.lock();
  ++record_.driver.start_ticks;
  EXPECT_EQ(view().driver, DriverState::gone) << "another process has got the pid";
  record_.driver.start_ticks = 0;
  EXPECT_EQ(view().driver, DriverState::gone) << "nobody can tell";
  record_.driver = {};
  EXPECT_EQ(view().driver, DriverState::gone) << "no process is named";
  EXPECT_EQ(view().state(), "died");
}

TEST_F(RunViewTest, AZombieDrivesNothing) {
  run_.lock();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  record_.driver.pid = child;
  record_.driver.start_ticks = sys::process_status(child)->start_ticks;
  EXPECT_EQ(view().driver, DriverState::alive);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(view().driver, DriverState::gone);
  EXPECT_EQ(view().state(), "died");
  waitpid(child, nullptr, 0);
  EXPECT_EQ(view().driver, DriverState::gone);
}

TEST_F(RunViewTest, ADriverOnAnotherHostIsBelieved) {
  record_.driver = {1 << 22, 1, "another-host"};
  EXPECT_EQ(view().driver, DriverState::elsewhere);
  EXPECT_EQ(view().state(), "running");
}

TEST_F(RunViewTest, ARunThatEndsMeanwhileHasNotDied) {
  record_.driver.start_ticks = 1;
  run_.write_run_json(record_.to_value());
  EventfulFiles files([&] {
    record_.state = "finished";
    run_.write_run_json(record_.to_value());
  });
  EXPECT_EQ(RunView::read(run_.path(), OddFields::refuse, files).state(), "finished");
}

TEST_F(RunViewTest, OfARunThatIsNotThere) {
  EXPECT_THROW(RunView::read(scratch_ / "nothing"), StorageError);
  EXPECT_THROW(RunView::read(run_.path(), OddFields::ignore), StorageError) << "no run.json yet";
}

TEST_F(RunViewTest, WhatIsNotARecordIsRefused) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"),
                                  std::string("\"x\""), std::string(100'000, '['), std::string("{\"a\": \"\xff\"}")})
    for (const auto odd : {OddFields::refuse, OddFields::ignore}) {
      spit(run_.path() / "run.json", text);
      EXPECT_THROW(RunView::read(run_.path(), odd), StorageError) << text.substr(0, 20);
    }
}

TEST_F(RunViewTest, OddFieldsAreRefusedOrIgnored) {
  for (const char* text : {R"({"state": "failed", "metrics": [1]})", R"({"state": "failed", "driver": 5})",
                           R"({"state": "failed", "config_run": {"checkpoint_score_order": 7}})"}) {
    spit(run_.path() / "run.json", text);
    EXPECT_THAT(message_of<StorageError>([&] { RunView::read(run_.path()); }),
                HasSubstr("run.json is not what Lockstep writes"));
    const auto view = RunView::read(run_.path(), OddFields::ignore);
    EXPECT_EQ(view.state(), "failed");
    EXPECT_EQ(view.record.metrics, Value::object());
    EXPECT_EQ(view.checkpoint_config.score_order, "max");
  }
}

TEST_F(RunViewTest, FilesOfEarlierVersionsAreRead) {
  spit(run_.path() / "run.json", R"({"state": "failed", "created": 7, "failures": [{"kind": "exit", "rank": 3}]})");
  const auto view = RunView::read(run_.path());
  EXPECT_EQ(view.state(), "failed");
  EXPECT_THAT(view.record.attempts, IsEmpty());
  ASSERT_EQ(view.record.failures.size(), 1U);
  EXPECT_EQ(view.record.failures[0].rank, 3);
}

TEST_F(RunViewTest, Duration) {
  record_.state = "finished";
  record_.finished = 1060.5;
  EXPECT_EQ(view().duration(), 60.5);
  record_.finished = 0;
  record_.updated = 1030;
  EXPECT_EQ(view().duration(), 30) << "until the last sign of life";
  record_.updated = 900;
  EXPECT_EQ(view().duration(), std::nullopt) << "the clock went back";
  record_.time_total_s = 12;
  EXPECT_EQ(view().duration(), 12);
  record_.state = "running";
  record_.driver.hostname = "another-host";
  record_.created = unix_seconds(wall_now()) - 100;
  EXPECT_GE(view().duration(), 99.0);
}

TEST_F(RunViewTest, CheckpointsByTheRunsOwnRule) {
  commit(0, 3);
  commit(1, 1);
  commit(2, 0, R"({"validation": {"loss": 9}})");
  commit(3, 2);
  record_.config_run = {
      {"num_to_keep", 2}, {"checkpoint_score_attribute", "validation/loss"}, {"checkpoint_score_order", "min"}};
  const auto view = this->view();
  const auto listed = view.checkpoints();
  ASSERT_EQ(listed.size(), 4U);
  EXPECT_EQ(listed[1].score, 1);
  EXPECT_EQ(listed[2].score, 9) << "the dict comes before the metrics";
  EXPECT_EQ(listed[1].manifest->size(), 2);
  EXPECT_EQ(listed[1].path, run_.checkpoint_path(1));
  const auto best = best_checkpoints(view.usable_checkpoints(), view.checkpoint_config);
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].second.at("validation").at("loss"), 2);
  EXPECT_EQ(*best[1].first.path(), fs::canonical(run_.checkpoint_path(1)));
}

TEST_F(RunViewTest, BrokenCheckpointsAreListedAndOfNoUse) {
  commit(0, 1);
  commit(1, 2);
  commit(2, 3, "{");
  spit(run_.checkpoint_path(0) / "manifest.json", "{");
  record_.config_run = {{"checkpoint_score_attribute", "validation/loss"}};
  const auto view = this->view();
  const auto listed = view.checkpoints();
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_FALSE(listed[0].manifest);
  EXPECT_THAT(listed[0].problem, HasSubstr("manifest"));
  EXPECT_TRUE(listed[1].checkpoint);
  EXPECT_TRUE(listed[2].manifest) << "its data.json is broken";
  EXPECT_FALSE(listed[2].checkpoint);
  const auto kept = view.usable_checkpoints();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].seq, 1);
}

TEST_F(RunViewTest, ReadingChangesNothing) {
  commit(0, 1);
  (void)view();
  const auto before = fs::last_write_time(run_.path());
  const std::string text = slurp(run_.path() / "run.json");
  (void)RunView::read(run_.path()).usable_checkpoints();
  EXPECT_EQ(fs::last_write_time(run_.path()), before);
  EXPECT_EQ(slurp(run_.path() / "run.json"), text);
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(run_.path())) names.push_back(item.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("run.json", "logs", "checkpoint_000000"));
}

}  // namespace
}  // namespace lockstep::store
