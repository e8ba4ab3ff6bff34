// Elastic runs in the whole loop: what is asked, told and recorded.

#include "run_loop_fixture.h"

namespace lockstep::driver {
namespace {

class GrowingRun : public RunLoopTest {
 protected:
  GrowingRun() {
    place_on({0});
    plan.options.scaling.num_workers = {1, 3};
    plan.wiring.room = [this] { return room; };
  }
  void checkpoint(int report) {
    cluster.report(0, report, {{"step", report}}, true);
    cluster.write(0, report, path());
  }

  int room = 1;
};

TEST_F(GrowingRun, EndsAfterACheckpointAndBeginsLarger) {
  then([&] { checkpoint(0); });
  then([&] {
    EXPECT_TRUE(cluster.sent<wire::PauseReports>().empty());
    room = 3;
    cluster.pass(1s);
  });
  then([&] {
    EXPECT_EQ(cluster.sent<wire::PauseReports>().size(), 1U);
    cluster.say_of(0, wire::ReportsPaused{2});
  });
  then([&] {
    place_on({0, 0, 0});
    checkpoint(1);
  });
  then([&] {
    const auto told = cluster.sent<wire::EndAfter>();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].reports, 2);
    EXPECT_TRUE(told[0].restarts);
    cluster.finish_all();
  });
  then([&] {
    EXPECT_EQ(cluster.alive.size(), 3U);
    cluster.finish_all();
  });
  const Result result = run();
  EXPECT_EQ(result.state, "finished");
  EXPECT_TRUE(result.failures.empty());
  EXPECT_EQ(result.world_sizes, (std::vector{1, 3}));
  const Value attempts = record().at("attempts");
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_EQ(attempts[0].at("outcome"), "resized");
  EXPECT_EQ(attempts[1].at("world_size"), 3);
  EXPECT_EQ(record().at("num_workers"), 3);
  EXPECT_EQ(record().at("config_run").at("num_workers"), Value::array({1, 3}));
}

TEST_F(GrowingRun, GoesOnIfNobodyKnowsWhatThereIs) {
  plan.wiring.room = []() -> int { throw EngineError("no answer"); };
  then([&] { checkpoint(0); });
  then([&] { cluster.finish_all(); });
  EXPECT_EQ(run().state, "finished");
}

}  // namespace
}  // namespace lockstep::driver
