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

TEST(Options, AreCheckedWhereATrainerTakesThem) {
  EXPECT_EQ(refusal([](auto& o) { o.scaling.num_workers = 0; }),
            "[ScalingConfig] num_workers is 0; it must be an int of at least 1");
  EXPECT_EQ(
      refusal([](auto& o) {
        o.scaling.num_workers = {8, 2};
      }),
      "[ScalingConfig] num_workers is (8, 2); it must be (minimum, maximum), two ints of at least 1, such as (2, 8)");
  EXPECT_EQ(refusal([](auto& o) { o.scaling.num_workers = {2, 8}; }), "");
  EXPECT_EQ(refusal([](auto& o) { o.run.checkpoint.num_to_keep = -1; }),
            "[CheckpointConfig] num_to_keep is -1; it must be None (all), 0 (in memory only) or more");
}

TEST(Options, OfDataSetsAreCheckedByTheSameRules) {
  const auto refusal_of = [](const DataConfig& config) -> std::string {
    try {
      DataParallelTrainer(nothing).datasets({{"train", read_range(3)}}, config);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_EQ(refusal_of({.window = 0}), "[DataConfig] window is 0; it must be an int from 1 to 2**62");
  EXPECT_EQ(refusal_of({.equal = "cut"}),
            "[DataConfig] equal is 'cut'; it must be 'pad' (or True), 'drop' or 'uneven' (or False)");
  EXPECT_EQ(refusal_of({.prefetch = 1001}), "[DataConfig] prefetch is 1001; it must be an int from 1 to 1000");
  EXPECT_EQ(refusal_of({.datasets_to_split = {"test"}}), "[trainer] DataConfig: there is no data set \"test\"");
}

TEST(Options, AFunctionThatIsNotRegisteredIsRefused) { EXPECT_THROW(DataParallelTrainer{unknown}, ConfigError); }

}  // namespace
}  // namespace lockstep
