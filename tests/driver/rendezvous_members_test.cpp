#include "driver/rendezvous_members.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::driver {
namespace {

using Hosts = std::vector<std::string>;

std::string text(const Slot& slot) {
  std::string out = slot.host;
  for (const int each : {slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size})
    out += " " + std::to_string(each);
  return out;
}

TEST(Slots, OneHost) {
  const auto slots = slots_of(Hosts(2, "a"));
  EXPECT_EQ(text(slots[0]), "a 0 2 0 2 0 1");
  EXPECT_EQ(text(slots[1]), "a 1 2 1 2 0 1");
}

TEST(Slots, HostsOfUnequalSize) {
  const auto slots = slots_of({"a", "a", "b", "c", "c", "c"});
  EXPECT_EQ(text(slots[0]), "a 0 6 0 2 0 3");
  EXPECT_EQ(text(slots[1]), "a 1 6 1 2 0 2");
  EXPECT_EQ(text(slots[2]), "b 2 6 0 1 1 3");
  EXPECT_EQ(text(slots[3]), "c 3 6 0 3 2 3");
  EXPECT_EQ(text(slots[4]), "c 4 6 1 3 1 2");
  EXPECT_EQ(text(slots[5]), "c 5 6 2 3 0 1");
}

TEST(Slots, NamesThatTheProtocolCannotCarry) {
  for (const char* name : {"", "a/b", "a:1", "a b", "a,b", "\xc3\xa4"})
    EXPECT_THROW(slots_of({name}), ConfigError) << name;
  EXPECT_THROW(slots_of({"a", "b", "a"}), ConfigError);
}

class MembersTest : public testing::Test {
 protected:
  static constexpr Seconds kPatience{2.0};

  /// Members that have been through their first round.
  Members joined(Hosts hosts) {
    Members members(std::move(hosts), kPatience);
    for (int i = 0; i < members.slot(0).size; ++i) members.ask(i, time);
    EXPECT_TRUE(members.all_ask());
    members.end_round();
    return members;
  }

  Instant time = Instant{} + 1000s;
};

TEST_F(MembersTest, TheFirstRoundIsOfNewcomers) {
  Members members(Hosts(2, "a"), kPatience);
  EXPECT_TRUE(members.in_round());
  EXPECT_EQ(members.called("a:0"), std::nullopt);
  EXPECT_EQ(members.newcomer(1), 1);
  members.ask(1, time);
  EXPECT_EQ(members.newcomer(1), std::nullopt) << "it is there";
  EXPECT_FALSE(members.all_ask());
  members.ask(0, time);
  EXPECT_TRUE(members.all_ask());
  members.end_round();
  EXPECT_FALSE(members.in_round());
  EXPECT_EQ(members.called("a:1"), 1);
  EXPECT_EQ(members.called("a:2"), std::nullopt);
  EXPECT_EQ(members.called("b:1"), std::nullopt);
}

TEST_F(MembersTest, ADeathBeginsARoundForAll) {
  Members members = joined(Hosts(3, "a"));
  EXPECT_TRUE(members.lose(1));
  EXPECT_TRUE(members.in_round());
  EXPECT_EQ(members.called("a:1"), std::nullopt);
  members.ask(0, time);
  members.ask(2, time);
  EXPECT_FALSE(members.all_ask());
  ASSERT_EQ(members.newcomer(1), 1);
  members.ask(1, time);
  EXPECT_TRUE(members.all_ask());
  for (int i : {0, 1, 2}) EXPECT_EQ(members.slot(i).rank, i);
}

TEST_F(MembersTest, RankZeroIsNeverFreshWhileAnotherHasTheState) {
  Members members = joined(Hosts(3, "a"));
  EXPECT_TRUE(members.lose(0));
  EXPECT_EQ(members.slot(1).rank, 0);
  EXPECT_EQ(members.slot(0).rank, 1);
  EXPECT_EQ(members.slot(2).rank, 2);
  EXPECT_EQ(members.called("a:1"), 1) << "until it is told, it calls itself so";
  EXPECT_EQ(members.newcomer(1), 0);
  EXPECT_TRUE(members.lose(1)) << "the heir dies too";
  EXPECT_EQ(members.slot(2).rank, 0);
  EXPECT_EQ(members.slot(0).rank, 1);
  EXPECT_EQ(members.slot(1).rank, 2);
  for (int i : {0, 1, 2}) members.ask(i, time);
  members.end_round();
  EXPECT_EQ(members.called("a:0"), 2);
  EXPECT_EQ(members.called("a:1"), 0);
  EXPECT_EQ(members.called("a:2"), 1);
}

TEST_F(MembersTest, TheHeirIsOnTheSameHost) {
  Members members = joined({"a", "a", "b"});
  EXPECT_TRUE(members.lose(0));
  EXPECT_EQ(members.slot(1).rank, 0);
  EXPECT_FALSE(members.lose(1)) << "nobody of a is left";
}

TEST_F(MembersTest, ADeathBeforeTheFirstRoundIsOverChangesNoSlot) {
  Members members(Hosts(2, "a"), kPatience);
  EXPECT_TRUE(members.lose(0));
  EXPECT_EQ(members.slot(0).rank, 0);
}

TEST_F(MembersTest, WhoDoesNotComeWhileAnotherWaitsIsStuck) {
  Members members = joined(Hosts(4, "a"));
  members.lose(1);
  EXPECT_EQ(members.deadline(), std::nullopt);
  members.ask(1, time);
  EXPECT_EQ(members.deadline(), std::nullopt) << "a newcomer has nothing that could be lost, and may be early";
  members.ask(0, time);
  EXPECT_EQ(members.deadline(), time + ticks(kPatience));
  members.ask(2, time + 1s);
  EXPECT_TRUE(members.take_stuck(time + 1900ms).empty());
  EXPECT_EQ(members.take_stuck(time + 2s), std::vector<int>{3});
  EXPECT_TRUE(members.take_stuck(time + 3s).empty()) << "told once";
  EXPECT_EQ(members.deadline(), std::nullopt);
  members.lose(3);
  EXPECT_TRUE(members.take_stuck(time + 60s).empty()) << "its successor has time";
  members.ask(3, time + 60s);
  EXPECT_TRUE(members.all_ask());
}

TEST_F(MembersTest, WhoWithdrawsIsWaitedForAgain) {
  Members members = joined(Hosts(2, "a"));
  members.ask(0, time);
  EXPECT_TRUE(members.in_round()) << "a rank may ask without a death";
  members.withdraw(0);
  members.ask(1, time);
  EXPECT_FALSE(members.all_ask());
  members.ask(0, time);
  EXPECT_TRUE(members.all_ask());
}

TEST_F(MembersTest, AnAttemptBeginsAnew) {
  Members members = joined(Hosts(2, "a"));
  members.lose(0);
  members.ask(1, time);
  members.begin();
  EXPECT_EQ(members.slot(0).rank, 0);
  EXPECT_EQ(members.called("a:1"), std::nullopt);
  EXPECT_EQ(members.deadline(), std::nullopt);
  EXPECT_FALSE(members.all_ask());
}

}  // namespace
}  // namespace lockstep::driver
