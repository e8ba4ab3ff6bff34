#include "horovod/members.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::horovod {
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
  for (const char* name :
       {"", "a/b", "a:1", "a b", "a,b", "\xc3\xa4", "a#", "#", "a?b", "a%41", "a\\b", "a\r\nb", "a\x7f"})
    EXPECT_THROW(slots_of({name}), ConfigError) << name;
  EXPECT_THROW(slots_of({std::string(201, 'x')}), ConfigError);
  EXPECT_THROW(slots_of({"a", "b", "a"}), ConfigError);
  EXPECT_EQ(slots_of({"node-1.some_where~", std::string(200, 'X')}).size(), 2u);
}

class MembersTest : public testing::Test {
 protected:
  static constexpr Seconds kPatience{2.0};
  static constexpr Seconds kGoOnAfter{0.5};
  using Round = Members::Round;

  /// Members that have been through their first round.
  Members joined(const Hosts& hosts, int fewest = 0) {
    Members members(hosts, {kPatience, fewest, kGoOnAfter});
    for (int i = 0; i < members.slot(0).size; ++i) members.ask(i, time);
    EXPECT_EQ(members.round(time), Members::Round::whole);
    members.end_round(Members::Round::whole);
    connect(members);
    return members;
  }

  /// All have found each other.
  static void connect(Members& members) {
    for (int i = 0; i < members.slot(0).size; ++i)
      if (!members.is_away(i)) members.connected(members.told(i).local_rank, members.told(i).cross_rank);
  }

  /// The world goes on without `lost`, whose successor is late.
  void shrink(Members& members, int lost) {
    ASSERT_TRUE(members.lose(lost, time));
    for (int i = 0; i < members.slot(0).size; ++i)
      if (!members.is_fresh(i)) members.ask(i, time);
    ASSERT_EQ(members.round(time + 500ms), Round::smaller);
    EXPECT_EQ(members.end_round(Round::smaller), std::vector<int>{lost});
    connect(members);
  }

  Instant time = Instant{} + 1000s;
};

TEST_F(MembersTest, TheFirstRoundIsOfNewcomers) {
  Members members(Hosts(2, "a"), {kPatience});
  EXPECT_TRUE(members.in_round());
  EXPECT_EQ(members.called("a:0"), std::nullopt);
  EXPECT_EQ(members.newcomer(1), 1);
  members.ask(1, time);
  EXPECT_EQ(members.newcomer(1), std::nullopt) << "it is there";
  EXPECT_EQ(members.round(time + 1h), Members::Round::open);
  members.ask(0, time);
  EXPECT_EQ(members.round(time), Members::Round::whole);
  members.end_round(Members::Round::whole);
  EXPECT_FALSE(members.in_round());
  EXPECT_EQ(members.called("a:1"), 1);
  EXPECT_EQ(members.called("a:2"), std::nullopt);
  EXPECT_EQ(members.called("b:1"), std::nullopt);
}

TEST_F(MembersTest, ADeathBeginsARoundForAll) {
  Members members = joined(Hosts(3, "a"));
  EXPECT_TRUE(members.lose(1, time));
  EXPECT_TRUE(members.in_round());
  EXPECT_EQ(members.called("a:1"), std::nullopt);
  members.ask(0, time);
  members.ask(2, time);
  EXPECT_EQ(members.round(time + 1h), Members::Round::open);
  ASSERT_EQ(members.newcomer(1), 1);
  members.ask(1, time);
  EXPECT_EQ(members.round(time), Members::Round::whole);
  for (int i : {0, 1, 2}) EXPECT_EQ(members.slot(i).rank, i);
}

TEST_F(MembersTest, RankZeroIsNeverFreshWhileAnotherHasTheState) {
  Members members = joined(Hosts(3, "a"));
  EXPECT_TRUE(members.lose(0, time));
  EXPECT_EQ(members.slot(1).rank, 0);
  EXPECT_EQ(members.slot(0).rank, 1);
  EXPECT_EQ(members.slot(2).rank, 2);
  EXPECT_EQ(members.called("a:1"), 1) << "until it is told, it calls itself so";
  EXPECT_EQ(members.newcomer(1), 0);
  EXPECT_TRUE(members.lose(1, time)) << "the heir dies too";
  EXPECT_EQ(members.slot(2).rank, 0);
  EXPECT_EQ(members.slot(0).rank, 1);
  EXPECT_EQ(members.slot(1).rank, 2);
  for (int i : {0, 1, 2}) members.ask(i, time);
  members.end_round(Members::Round::whole);
  EXPECT_EQ(members.called("a:0"), 2);
  EXPECT_EQ(members.called("a:1"), 0);
  EXPECT_EQ(members.called("a:2"), 1);
}

TEST_F(MembersTest, TheHeirIsOnTheSameHost) {
  Members members = joined({"a", "a", "b"});
  EXPECT_TRUE(members.lose(0, time));
  EXPECT_EQ(members.slot(1).rank, 0);
  EXPECT_FALSE(members.lose(1, time)) << "nobody of a is left";
}

TEST_F(MembersTest, MembersAreJoiningFromTheEndOfARoundUntilAllAreConnected) {
  Members members({"a", "a", "b"}, {kPatience});
  for (int i : {0, 1, 2}) {
    EXPECT_FALSE(members.are_joining_beside(0));
    members.ask(i, time);
  }
  members.end_round(Round::whole);
  EXPECT_TRUE(members.are_joining_beside(0));
  members.connected(0, 1);
  members.connected(1, 0);
  EXPECT_FALSE(members.are_joining_beside(0)) << "it is the last";
  EXPECT_TRUE(members.are_joining_beside(1));
  EXPECT_TRUE(members.are_joining_beside(2));
  members.connected(3, 3);
  members.ask(0, time);
  EXPECT_FALSE(members.are_joining_beside(1)) << "who asks has left the others";
}

TEST_F(MembersTest, ADeathOfASurvivorBeforeTheRoundEndsFindsNobodyJoining) {
  Members members = joined(Hosts(3, "a"));
  members.lose(1, time);
  members.ask(0, time);
  EXPECT_FALSE(members.are_joining_beside(2));
  members.lose(2, time);
  for (int i : {1, 2}) members.ask(i, time);
  members.end_round(Round::whole);
  EXPECT_TRUE(members.are_joining_beside(2));
  members.begin();
  EXPECT_FALSE(members.are_joining_beside(2));
}

TEST_F(MembersTest, ThoseWhoAreAwayAreNotJoining) {
  Members members = joined(Hosts(3, "a"), 2);
  members.lose(1, time);
  for (int i : {0, 2}) members.ask(i, time);
  members.end_round(Round::smaller);
  EXPECT_TRUE(members.are_joining_beside(0));
  members.connected(1, 0);
  EXPECT_FALSE(members.are_joining_beside(0)) << "the one that was told to be the second";
}

TEST_F(MembersTest, ADeathBeforeTheFirstRoundIsOverChangesNoSlot) {
  Members members(Hosts(2, "a"), {kPatience});
  EXPECT_TRUE(members.lose(0, time));
  EXPECT_EQ(members.slot(0).rank, 0);
}

TEST_F(MembersTest, WhoDoesNotComeWhileAnotherWaitsIsStuck) {
  Members members = joined(Hosts(4, "a"));
  members.lose(1, time);
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
  members.lose(3, time);
  EXPECT_TRUE(members.take_stuck(time + 60s).empty()) << "its successor has time";
  members.ask(3, time + 60s);
  EXPECT_EQ(members.round(time), Members::Round::whole);
}

TEST_F(MembersTest, NobodyIsStuckWhileNobodyHasDied) {
  Members members = joined(Hosts(3, "a"));
  members.ask(1, time);
  EXPECT_EQ(members.deadline(), std::nullopt);
  EXPECT_TRUE(members.take_stuck(time + 1h).empty());
  time += 1h;
  EXPECT_TRUE(members.lose(2, time));
  EXPECT_EQ(members.deadline(), time + ticks(kPatience)) << "from the death on, the other one is expected";
  EXPECT_TRUE(members.take_stuck(time + 1900ms).empty());
  members.lose(2, time + 1s);
  EXPECT_EQ(members.take_stuck(time + 2s), std::vector<int>{0}) << "a second death gives it no more time";
}

TEST_F(MembersTest, WhoWithdrawsIsWaitedForAgain) {
  Members members = joined(Hosts(2, "a"));
  members.ask(0, time);
  EXPECT_TRUE(members.in_round()) << "a rank may ask without a death";
  members.withdraw(0);
  members.ask(1, time);
  EXPECT_EQ(members.round(time + 1h), Members::Round::open);
  members.ask(0, time);
  EXPECT_EQ(members.round(time), Members::Round::whole);
}

TEST_F(MembersTest, AnAttemptBeginsAnew) {
  Members members = joined(Hosts(2, "a"));
  members.lose(0, time);
  members.ask(1, time);
  members.begin();
  EXPECT_EQ(members.slot(0).rank, 0);
  EXPECT_EQ(members.called("a:1"), std::nullopt);
  EXPECT_EQ(members.deadline(), std::nullopt);
  EXPECT_EQ(members.round(time + 1h), Members::Round::open);
}

// ---------------------------------------------------------------- smaller worlds

TEST_F(MembersTest, OthersGoOnWhenTheNewOneIsLate) {
  Members members = joined(Hosts(3, "a"), 2);
  members.lose(1, time);
  members.ask(0, time);
  EXPECT_EQ(members.deadline(), time + ticks(kPatience)) << "another one is to come";
  EXPECT_EQ(members.round(time + 1s), Round::open) << "nobody who lives is left behind";
  members.ask(2, time + 100ms);
  EXPECT_EQ(members.deadline(), time + 500ms);
  EXPECT_EQ(members.round(time + 499ms), Round::open);
  EXPECT_EQ(members.round(time + 500ms), Round::smaller);
  EXPECT_FALSE(members.is_away(1));
  EXPECT_EQ(members.end_round(Round::smaller), std::vector<int>{1});
  EXPECT_TRUE(members.is_away(1));
  EXPECT_FALSE(members.in_round());
  EXPECT_EQ(members.deadline(), std::nullopt);
  EXPECT_EQ(text(members.told(0)), "a 0 2 0 2 0 1");
  EXPECT_EQ(text(members.told(2)), "a 1 2 1 2 0 1");
  EXPECT_EQ(members.called("a:1"), 2) << "it calls itself as it was told";
  EXPECT_EQ(members.called("a:2"), std::nullopt);
  EXPECT_EQ(text(members.slot(1)), "a 1 3 1 3 0 1") << "the new one was told of the whole world";
}

TEST_F(MembersTest, ANewOneThatIsInTimeIsNotLeft) {
  Members members = joined(Hosts(3, "a"), 2);
  members.lose(1, time);
  for (int i : {0, 2, 1}) members.ask(i, time);
  EXPECT_EQ(members.round(time), Round::whole);
  EXPECT_EQ(members.round(time + 1h), Round::whole);
  EXPECT_EQ(members.end_round(Round::whole), std::vector<int>{1}) << "it is one of them now";
}

TEST_F(MembersTest, AllComeTogetherAgain) {
  Members members = joined(Hosts(3, "a"), 2);
  shrink(members, 1);
  EXPECT_EQ(members.due_notice(), std::nullopt);
  members.ask(1, time);
  EXPECT_FALSE(members.in_round()) << "the others do not know yet";
  EXPECT_EQ(members.due_notice(), 0);
  members.ask(0, time);
  EXPECT_EQ(members.due_notice(), std::nullopt) << "they know";
  EXPECT_EQ(members.round(time + 1s), Round::open);
  members.ask(2, time);
  ASSERT_EQ(members.round(time), Round::whole);
  EXPECT_EQ(members.end_round(Round::whole), std::vector<int>{1});
  for (int i : {0, 1, 2}) {
    EXPECT_EQ(members.told(i).rank, i);
    EXPECT_EQ(members.told(i).size, 3);
    EXPECT_FALSE(members.is_away(i));
  }
  EXPECT_EQ(members.due_notice(), std::nullopt);
}

TEST_F(MembersTest, FewerThanTheFewestWait) {
  Members members = joined(Hosts(3, "a"), 2);
  members.lose(1, time);
  members.lose(2, time);
  members.ask(0, time);
  EXPECT_EQ(members.round(time + 1h), Round::open);
  members.ask(1, time);
  EXPECT_EQ(members.round(time + 1h), Round::open) << "it has no state";
  members.ask(2, time);
  EXPECT_EQ(members.round(time), Round::whole);
}

TEST_F(MembersTest, ADeathInASmallerWorld) {
  Members members = joined(Hosts(4, "a"), 2);
  shrink(members, 3);
  members.ask(3, time);
  EXPECT_EQ(members.due_notice(), 0);
  EXPECT_TRUE(members.lose(0, time));
  EXPECT_TRUE(members.in_round());
  EXPECT_EQ(members.slot(0).rank, 1) << "its successor is told so; the one that waits already has its slot still";
  EXPECT_EQ(members.slot(1).rank, 0);
  EXPECT_EQ(members.slot(3).rank, 3);
  members.ask(1, time);
  members.ask(2, time);
  ASSERT_EQ(members.round(time + 500ms), Round::smaller);
  EXPECT_EQ(members.end_round(Round::smaller), std::vector<int>{0}) << "3 had left before";
  EXPECT_EQ(text(members.told(1)), "a 0 2 0 2 0 1");
  EXPECT_EQ(text(members.told(2)), "a 1 2 1 2 0 1");
  EXPECT_EQ(members.due_notice(), std::nullopt) << "all come back together";
  members.ask(0, time);
  EXPECT_EQ(members.due_notice(), 1);
  for (int i : {1, 2}) members.ask(i, time);
  ASSERT_EQ(members.round(time), Round::whole);
  EXPECT_EQ(members.end_round(Round::whole), (std::vector<int>{0, 3}));
  EXPECT_EQ(members.told(1).rank, 0);
  EXPECT_EQ(members.told(0).rank, 1);
  EXPECT_EQ(members.called("a:0"), 1);
}

TEST_F(MembersTest, OneThatIsAwayDiesAndTheOthersDoNotCare) {
  Members members = joined(Hosts(3, "a"), 2);
  shrink(members, 0);
  EXPECT_EQ(members.told(1).rank, 0);
  members.ask(0, time);
  EXPECT_EQ(members.due_notice(), 1);
  EXPECT_TRUE(members.lose(0, time));
  EXPECT_FALSE(members.in_round());
  EXPECT_TRUE(members.is_away(0));
  EXPECT_EQ(members.due_notice(), std::nullopt);
  EXPECT_EQ(members.slot(0).rank, 1);
  EXPECT_EQ(members.told(1).rank, 0);
}

TEST_F(MembersTest, OneThatDiesAfterTheNoticeIsLeftAgain) {
  Members members = joined(Hosts(3, "a"), 2);
  shrink(members, 1);
  members.ask(1, time);
  members.ask(0, time);
  members.lose(1, time);
  members.ask(2, time);
  EXPECT_EQ(members.deadline(), time + 500ms);
  ASSERT_EQ(members.round(time + 500ms), Round::smaller);
  EXPECT_EQ(members.end_round(Round::smaller), std::vector<int>{}) << "it was away before";
  EXPECT_EQ(members.told(2).size, 2);
}

TEST_F(MembersTest, OneThatHasReturnedIsStuckWhenAnotherAsks) {
  Members members = joined(Hosts(2, "a"));
  members.finish(1);
  members.ask(0, time);
  EXPECT_EQ(members.take_stuck(time + 1s), std::vector<int>{});
  EXPECT_EQ(members.take_stuck(time + 2s), std::vector<int>{1}) << "the other waits for it in vain";
}

TEST_F(MembersTest, InASmallerWorldNobodyIsStuckBeforeANotice) {
  Members members = joined(Hosts(3, "a"), 2);
  shrink(members, 1);
  members.ask(0, time);
  EXPECT_TRUE(members.take_stuck(time + 1h).empty());
  time += 1h;
  members.ask(1, time);
  EXPECT_EQ(members.deadline(), time + ticks(kPatience)) << "all who were away are there";
  EXPECT_EQ(members.take_stuck(time + 2s), std::vector<int>{2});
}

TEST_F(MembersTest, RanksOfOneHostStandTogetherInASmallerWorld) {
  Members members = joined({"a", "a", "b", "b", "b"}, 2);
  members.lose(0, time);
  members.lose(3, time);
  for (int i : {1, 2, 4}) members.ask(i, time);
  ASSERT_EQ(members.round(time + 500ms), Round::smaller);
  EXPECT_EQ(members.end_round(Round::smaller), (std::vector<int>{0, 3}));
  EXPECT_EQ(text(members.told(1)), "a 0 3 0 1 0 2");
  EXPECT_EQ(text(members.told(2)), "b 1 3 0 2 1 2");
  EXPECT_EQ(text(members.told(4)), "b 2 3 1 2 0 1");
  EXPECT_EQ(members.called("b:1"), 4);
}

TEST_F(MembersTest, AStuckOneIsReplacedBeforeTheOthersGoOn) {
  Members members = joined(Hosts(4, "a"), 2);
  members.lose(1, time);
  members.ask(0, time);
  members.ask(2, time);
  EXPECT_EQ(members.take_stuck(time + 2s), std::vector<int>{3});
  EXPECT_EQ(members.round(time + 2s), Round::open) << "as long as it lives";
  members.lose(3, time);
  ASSERT_EQ(members.round(time + 2s), Round::smaller);
  EXPECT_EQ(members.end_round(Round::smaller), (std::vector<int>{1, 3}));
}

TEST_F(MembersTest, WhoIsAwayWhenTheOthersHaveFinishedIsNotNeeded) {
  Members members = joined(Hosts(3, "a"), 2);
  EXPECT_TRUE(members.take_needless().empty());
  shrink(members, 1);
  members.finish(0);
  EXPECT_TRUE(members.take_needless().empty());
  members.ask(1, time);
  EXPECT_EQ(members.due_notice(), std::nullopt) << "rank 0 would not come";
  members.finish(2);
  EXPECT_EQ(members.take_needless(), std::vector<int>{1});
  EXPECT_TRUE(members.take_needless().empty()) << "told once";
}

TEST_F(MembersTest, WhenAllFinishNobodyIsNeedless) {
  Members members = joined(Hosts(2, "a"), 1);
  members.finish(0);
  members.finish(1);
  EXPECT_TRUE(members.take_needless().empty());
}

TEST_F(MembersTest, AnAttemptBeginsWhole) {
  Members members = joined(Hosts(2, "a"), 1);
  shrink(members, 0);
  members.begin();
  EXPECT_FALSE(members.is_away(0));
  EXPECT_EQ(members.round(time + 1h), Round::open) << "in the first round all wait for all";
}

TEST_F(MembersTest, TheFewestAreAmongThem) {
  EXPECT_THROW(Members(Hosts(2, "a"), {kPatience, 3}), ConfigError);
  EXPECT_THROW(Members(Hosts(2, "a"), {kPatience, -1}), ConfigError);
  EXPECT_NO_THROW(Members(Hosts(2, "a"), {kPatience, 2}));
}

}  // namespace
}  // namespace lockstep::horovod
