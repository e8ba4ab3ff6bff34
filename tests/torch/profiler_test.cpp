#include <algorithm>
#include <fstream>

#include "runs.h"

namespace lockstep::torch {
namespace {

namespace fs = std::filesystem;

class Traces : public tests::Runs {};

Value read(const fs::path& path) {
  std::ifstream file(path);
  return Value::parse(file);
}

TEST_F(Traces, AreRecordedOneAtATime) {
  Profile first({.directory = directory_});
  EXPECT_THROW(Profile({.directory = directory_}), ConfigError);
  ::torch::ones({2, 2}).mm(::torch::ones({2, 2}));
  first.stop();
  EXPECT_TRUE(read(first.path()).contains("traceEvents")) << "the refused one did not end it";
  Profile second({.directory = directory_});
  EXPECT_NE(second.path(), first.path());
  second.stop();
  second.stop();
}

TEST_F(Traces, TakeAPath) {
  const std::string file = (directory_ / "new" / "trace.json").string();
  {
    const auto trace = profile(file);
    EXPECT_EQ(trace.path(), file);
  }
  EXPECT_TRUE(read(file).contains("traceEvents"));
  const auto trace = profile(directory_.c_str());
  EXPECT_EQ(trace.path().parent_path(), directory_);
}

TEST_F(Traces, AreSavedWhenTheyEnd) {
  fs::path path;
  {
    const auto trace = profile({.directory = directory_ / "traces"});
    path = trace.path();
    ::torch::mm(::torch::ones({8, 8}), ::torch::ones({8, 8}));
  }
  EXPECT_EQ(path.filename(), "rank_0.0.pt.trace.json");
  const Value trace = read(path);
  const auto& events = trace["traceEvents"];
  EXPECT_TRUE(
      std::any_of(events.begin(), events.end(), [](const auto& e) { return e.value("name", "") == "aten::mm"; }));
}

}  // namespace
}  // namespace lockstep::torch
