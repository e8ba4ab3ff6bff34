#include "store/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<ScoredCheckpoint> scored(const std::vector<std::optional<double>>& scores) {
  std::vector<ScoredCheckpoint> checkpoints;
  for (const auto& score : scores) checkpoints.push_back({static_cast<int>(checkpoints.size()), score});
  return checkpoints;
}

TEST(Retention, WithoutALimitAllStayAndAllAreListed) {
  const auto decided = decide_retention(scored({3, 1, 2}), std::nullopt, ScoreOrder::max);
  EXPECT_THAT(decided.remove, IsEmpty());
  EXPECT_THAT(decided.best, ElementsAre(1, 2, 0));
}

TEST(Retention, KeepsTheBestByOrder) {
  const auto highest = decide_retention(scored({2, 4, 1, 3}), 2, ScoreOrder::max);
  EXPECT_THAT(highest.best, ElementsAre(3, 1));
  EXPECT_THAT(highest.remove, ElementsAre(0, 2));
  const auto lowest = decide_retention(scored({2, 4, 1, 3}), 2, ScoreOrder::min);
  EXPECT_THAT(lowest.best, ElementsAre(0, 2));
  EXPECT_THAT(lowest.remove, ElementsAre(1)) << "the latest stays, though it is not among the best";
}

TEST(Retention, WithoutScoresLaterIsBetter) {
  const auto decided = decide_retention(scored({{}, {}, {}, {}}), 2, ScoreOrder::max);
  EXPECT_THAT(decided.best, ElementsAre(2, 3));
  EXPECT_THAT(decided.remove, ElementsAre(0, 1));
}

TEST(Retention, OfEqualScoresTheLaterIsBetter) {
  for (const auto order : {ScoreOrder::max, ScoreOrder::min}) {
    const auto decided = decide_retention(scored({5, 5, 5}), 1, order);
    EXPECT_THAT(decided.best, ElementsAre(2));
    EXPECT_THAT(decided.remove, ElementsAre(0, 1));
  }
}

TEST(Retention, NanAndMissingAreWorseThanAnyNumber) {
  for (const auto order : {ScoreOrder::max, ScoreOrder::min}) {
    const auto decided = decide_retention(scored({kNan, -kInf, {}, kInf, kNan}), 2, order);
    const bool highest = order == ScoreOrder::max;
    EXPECT_THAT(decided.best, ElementsAre(highest ? 1 : 3, highest ? 3 : 1));
    EXPECT_THAT(decided.remove, ElementsAre(0, 2));
  }
  const auto all = decide_retention(scored({kNan, 1, {}, 0}), 4, ScoreOrder::max);
  EXPECT_THAT(all.best, ElementsAre(0, 2, 3, 1));
}

TEST(Retention, TheLatestIsNeverRemovedAndNotListedUnlessGood) {
  const auto decided = decide_retention(scored({9, 8, 1}), 2, ScoreOrder::max);
  EXPECT_THAT(decided.best, ElementsAre(1, 0));
  EXPECT_THAT(decided.remove, IsEmpty());
}

TEST(Retention, ProtectedOnesStay) {
  const auto decided = decide_retention(scored({1, 2, 3, 4}), 1, ScoreOrder::max, {0, 2});
  EXPECT_THAT(decided.best, ElementsAre(3));
  EXPECT_THAT(decided.remove, ElementsAre(1));
}

TEST(Retention, ZeroListsNoneAndKeepsTheLatest) {
  const auto decided = decide_retention(scored({1, 2}), 0, ScoreOrder::max);
  EXPECT_THAT(decided.best, IsEmpty());
  EXPECT_THAT(decided.remove, ElementsAre(0));
}

TEST(Retention, TheOrderOfTheListDoesNotMatter) {
  const auto decided = decide_retention({{7, 1.0}, {2, 1.0}, {5, 2.0}}, 2, ScoreOrder::max);
  EXPECT_THAT(decided.best, ElementsAre(7, 5));
  EXPECT_THAT(decided.remove, ElementsAre(2));
  EXPECT_THAT(decide_retention({}, 2, ScoreOrder::max).best, IsEmpty());
}

}  // namespace
}  // namespace lockstep::store
