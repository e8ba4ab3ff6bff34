#include "data/cursor.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include "base/json.h"

namespace lockstep::data {
namespace {

Cursor make(std::int64_t window = 10, std::uint64_t seed = 3, const std::string& fingerprint = "abc") {
  return {fingerprint, 100, {window > 0, seed, std::max<std::int64_t>(window, 1)}};
}

TEST(Cursor, CountsEpochsAndPositions) {
  Cursor cursor = make();
  EXPECT_EQ(cursor.begin().position, 0);
  cursor.advance(40);
  EXPECT_EQ(cursor.state()["position"], 40);
  cursor.finish();
  EXPECT_EQ(cursor.state()["epoch"], 1);
  EXPECT_EQ(cursor.state()["position"], 0);
  EXPECT_EQ(cursor.begin().epoch, 1);
}

TEST(Cursor, APassThatIsLeftEarlyEndsItsEpoch) {
  Cursor cursor = make();
  cursor.begin();
  cursor.advance(40);
  const Start next = cursor.begin();
  EXPECT_EQ(next.epoch, 1);
  EXPECT_EQ(next.position, 0);
}

TEST(Cursor, ContinuesAtALoadedState) {
  Cursor cursor = make();
  cursor.set_epoch(2);
  cursor.begin();
  cursor.advance(40);
  Cursor other = make();
  other.load_state(Value::parse(to_json(cursor.state())));
  other.set_epoch(2);  // as a loop over epochs does
  EXPECT_EQ(other.state(), cursor.state());
  const Start start = other.begin();
  EXPECT_EQ(start.epoch, 2);
  EXPECT_EQ(start.position, 40);
  other.finish();
  EXPECT_EQ(other.begin().position, 0);
}

TEST(Cursor, SetEpochBeginsThatEpoch) {
  Cursor cursor = make();
  cursor.begin();
  cursor.advance(40);
  cursor.set_epoch(0);
  EXPECT_EQ(cursor.begin().position, 0);
  EXPECT_THROW(cursor.set_epoch(-1), ConfigError);
}

TEST(Cursor, TheStateIsSmall) {
  Cursor cursor("0123456789abcdef", INT64_MAX, {true, UINT64_MAX, INT64_MAX});
  cursor.set_epoch(INT64_MAX - 1);
  cursor.begin();
  cursor.advance(INT64_MAX);
  EXPECT_LT(to_json(cursor.state()).size(), 300u);
  Cursor other("0123456789abcdef", INT64_MAX, {true, UINT64_MAX, INT64_MAX});
  other.load_state(cursor.state());
  EXPECT_EQ(other.state(), cursor.state());
}

TEST(Cursor, RefusesStatesOfOtherDataOrOrders) {
  const Value state = make().state();
  EXPECT_THROW(make(10, 3, "abd").load_state(state), ConfigError);
  EXPECT_THROW(make(11).load_state(state), ConfigError);
  EXPECT_THROW(make(10, 4).load_state(state), ConfigError);
  EXPECT_THROW(make(0).load_state(state), ConfigError);
  make(0, 1).load_state(make(0, 2).state());  // the seed of no shuffle does not matter
  for (const char* key : {"version", "seed", "window", "epoch", "position", "fingerprint"}) {
    Value lacking = state;
    lacking.erase(key);
    EXPECT_THROW(make().load_state(lacking), ConfigError) << key;
    Value wrong = state;
    wrong[key] = -1;
    EXPECT_THROW(make().load_state(wrong), ConfigError) << key;
  }
  Value far = state;
  far["position"] = 101u;
  EXPECT_THROW(make().load_state(far), ConfigError);
  EXPECT_THROW(make().load_state(Value("text")), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
