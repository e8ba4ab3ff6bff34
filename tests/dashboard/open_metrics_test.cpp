#include "dashboard/open_metrics.h"

#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

TEST(OpenMetrics, HasTheRunsOfAList) {
  const std::string text = open_metrics(R"({"runs": [
      {"id": "a\"b", "state": "running", "iteration": 7, "attempts": 3, "failures": 2, "checkpoints": 4,
       "checkpoints_skipped": 0, "workers": 2, "duration": 1.5, "progress": null, "updated": 100.0,
       "metrics": {"loss": 0.25, "name": "x", "data_wait/s": 3, "diverged": "NaN", "up": "Infinity",
                   "down": "-Infinity"}},
      {"id": "odd", "state": "unreadable", "metrics": {}, "nodes": [], "error": "broken"}], "experiments": []})");
  const auto has = [&](const std::string& line) { return text.find(line + "\n") != std::string::npos; };
  EXPECT_TRUE(has("# TYPE lockstep_reports counter")) << text;
  EXPECT_TRUE(has(R"(lockstep_reports_total{run="a\"b"} 7.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_restarts_total{run="a\"b"} 2.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_failures_total{run="a\"b"} 2.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_checkpoints_total{run="a\"b"} 4.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_run_state{run="a\"b",lockstep_run_state="running"} 1.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_run_state{run="odd",lockstep_run_state="running"} 0.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_metric{run="a\"b",name="data_wait/s"} 3.0)")) << text;
  EXPECT_TRUE(has(R"(lockstep_metric{run="a\"b",name="diverged"} NaN)")) << text;
  EXPECT_TRUE(has(R"(lockstep_metric{run="a\"b",name="up"} +Inf)")) << text;
  EXPECT_TRUE(has(R"(lockstep_metric{run="a\"b",name="down"} -Inf)")) << text;
  EXPECT_EQ(text.find("lockstep_progress_ratio{"), std::string::npos) << text;
  EXPECT_EQ(text.find("name=\"name\""), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

}  // namespace
}  // namespace lockstep::dashboard
