// Checks of checkpoints, beside a run and at its end.

#include "driver/validations.h"

#include <lockstep/callback.h>

#include <csignal>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "driver/run_control.h"
#include "run_loop_fixture.h"
#include "sys/signals.h"

namespace lockstep::driver {
namespace {

/// What a test says was found.
struct TestValidations : Validations {
  std::set<int> waiting() override { return waits; }
  bool goes_on() override { return on; }
  std::map<int, Value> take() override {
    for (const auto& [seq, metrics] : found) waits.erase(seq);
    return std::exchange(found, {});
  }
  void find(int seq, Value metrics) { found.emplace(seq, std::move(metrics)); }

  std::set<int> waits;
  std::map<int, Value> found;
  bool on = true;
};

struct ValidationCallback : Callback {
  std::string name() const override { return "ValidationCallback"; }
  void on_checkpoint(const Checkpoint& checkpoint, const Value&) override {
    checks->waits.insert(checkpoint.metadata()->at("seq").get<int>());
  }
  void on_validated(const Checkpoint&, const Value& metrics) override {
    validated.push_back(metrics.value("accuracy", 0.0));
    if (raises) throw std::runtime_error("boom");
  }
  TestValidations* checks = nullptr;
  std::vector<double> validated;
  bool raises = false;
};

class ValidationsTest : public RunLoopTest {
 protected:
  ValidationsTest() {
    callback.checks = &checks;
    plan.options.run.callbacks.push_back(&callback);
    plan.wiring.validations = &checks;
    plan.wiring.release = [this] { released = cluster.alive.empty(); };
    plan.wiring.signals = &signals;
    plan.wiring.control = &control;
    place(1);
  }
  /// The function reports so many checkpoints and returns.
  void train(int checkpoints) {
    for (int i = 0; i < checkpoints; ++i)
      then([this, i] {
        cluster.report(0, i, {{"loss", 1.0}}, true);
        cluster.write(0, i, path());
      });
    then([this] { cluster.finish_all(); });
  }
  store::Manifest manifest(int seq) const { return store::RunDirectory(path()).checkpoint(seq).manifest; }

  TestValidations checks;
  ValidationCallback callback;
  sys::SignalWatch signals;
  RunControl control;
  bool released = false;
};

TEST_F(ValidationsTest, TheEndWaitsWithoutTheResources) {
  train(1);
  then([&] {
    EXPECT_TRUE(released);
    checks.find(0, {{"accuracy", 0.5}});
  });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(callback.validated, std::vector{0.5});
  EXPECT_TRUE(manifest(0).validated);
  EXPECT_TRUE(record()["validates"]);
}

TEST_F(ValidationsTest, ASignalEndsTheWait) {
  plan.options.run.checkpoint.num_to_keep = 1;
  train(3);
  then([] { std::raise(SIGINT); });
  EXPECT_EQ(run().state, "interrupted");
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_EQ(store::RunDirectory(path()).checkpoints(), (std::vector{0, 1, 2})) << "none was checked";
  EXPECT_FALSE(manifest(2).validated);
}

TEST_F(ValidationsTest, SoDoesANotice) {
  train(1);
  then([] { std::raise(SIGUSR1); });
  EXPECT_EQ(run().state, "preempted");
  EXPECT_EQ(outcome.signal, SIGUSR1);
}

TEST_F(ValidationsTest, AStopEndsTheWait) {
  plan.options.run.checkpoint.num_to_keep = 1;
  train(2);
  then([&] { control.request_stop(true); });
  EXPECT_EQ(run().state, "finished") << "the training has";
  EXPECT_EQ(store::RunDirectory(path()).checkpoints(), (std::vector{0, 1}));
}

TEST_F(ValidationsTest, TheEndOfTheChecksEndsTheWait) {
  train(1);
  then([&] {
    checks.find(0, {{"accuracy", 0.5}});
    checks.on = false;
  });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(callback.validated, std::vector{0.5}) << "what was found before is not lost";
}

TEST_F(ValidationsTest, AStoppedRunKeepsWhatIsNotChecked) {
  plan.options.run.checkpoint.num_to_keep = 1;
  for (int i = 0; i < 3; ++i)
    then([this, i] {
      cluster.report(0, i, {{"loss", 1.0}}, true);
      cluster.write(0, i, path());
    });
  then([&] {
    checks.find(0, {{"accuracy", 0.5}});
    control.request_stop(true);
  });
  EXPECT_EQ(run().state, "stopped");
  EXPECT_EQ(store::RunDirectory(path()).checkpoints(), (std::vector{1, 2})) << "0 was checked";
}

TEST_F(ValidationsTest, ACallbackThatRaisesLosesNoResult) {
  callback.raises = true;
  train(3);
  then([&] {
    for (const int seq : {0, 1, 2}) checks.find(seq, {{"accuracy", seq + 1.0}});
  });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(callback.validated, (std::vector{1.0, 2.0, 3.0}));
  for (const int seq : {0, 1, 2}) EXPECT_EQ(manifest(seq).metrics["accuracy"], seq + 1.0);
}

TEST_F(ValidationsTest, AResultThatCannotBeSavedLosesNoOther) {
  train(3);
  then([&] {
    std::filesystem::remove(path() / "checkpoint_000001" / "manifest.json");
    for (const int seq : {0, 1, 2}) checks.find(seq, {{"accuracy", seq + 1.0}});
  });
  EXPECT_EQ(run().state, "finished");
  EXPECT_EQ(callback.validated, (std::vector{1.0, 3.0}));
  for (const int seq : {0, 2}) EXPECT_TRUE(manifest(seq).validated);
}

}  // namespace
}  // namespace lockstep::driver
