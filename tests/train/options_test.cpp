#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

namespace lockstep {
namespace {

void nothing(Session&) {}
void unknown(Session&) {}
LOCKSTEP_TRAIN_FUNCTION(nothing);

namespace other {
void nothing(Session&) {}
}  // namespace other
LOCKSTEP_TRAIN_FUNCTION(other::nothing);

namespace third {
void nothing(Session&) {}
LOCKSTEP_TRAIN_FUNCTION(nothing);
}  // namespace third

template <class Change>
std::string refusal(Change&& change) {
  TrainerOptions options;
  change(options);
  try {
    DataParallelTrainer(nothing, options);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Options, DefaultsAreFine) {
  EXPECT_EQ(refusal([](TrainerOptions&) {}), "");
}

TEST(Options, FunctionsOfOtherNamespacesCanBeRegistered) {
  EXPECT_NO_THROW(DataParallelTrainer(other::nothing, TrainerOptions{}));
}

TEST(Options, FunctionsMayHaveTheSameName) {
  EXPECT_NO_THROW(DataParallelTrainer(nothing, TrainerOptions{}));
  EXPECT_NO_THROW(DataParallelTrainer(third::nothing, TrainerOptions{}));
}

TEST(Options, RefusalsNameTheFieldAndTheValue) {
  EXPECT_NE(refusal([](auto& o) { o.scaling.num_workers = 0; }).find("num_workers is 0"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.scaling.placement_strategy = "NEAR"; }).find("\"NEAR\""), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.failure.max_failures = -2; }).find("max_failures is -2"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.checkpoint.num_to_keep = -1; }).find("num_to_keep is -1"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.checkpoint.score_order = "up"; }).find("score_order"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.log_to_console = "rank1"; }).find("run.log_to_console is \"rank1\""),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.name = "../x"; }).find("run name"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.scaling.resources_per_worker["GPU"] = 1; }).find("use_gpu"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.scaling.resources_per_worker["CPU"] = -1; }).find("CPU"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.run.hang_timeout = std::chrono::seconds(0); }).find("hang_timeout"),
            std::string::npos);
}

TEST(Options, AFunctionThatIsNotRegisteredIsRefused) { EXPECT_THROW(DataParallelTrainer{unknown}, ConfigError); }

}  // namespace
}  // namespace lockstep
