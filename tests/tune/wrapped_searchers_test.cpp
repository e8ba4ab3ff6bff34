#include <gtest/gtest.h>

#include <cmath>

#include "test_functions.h"

namespace lockstep::tune {
namespace {

using AskedKind = PointSearcher::Asked::Kind;

Space line_space() { return Space::parse({{"x", uniform_domain(0, 1)}}); }

std::unique_ptr<PointSearcher> limited(int most, bool batch, const char* kind = "random") {
  const Value inner{{"kind", kind}};
  return make_searcher({{"kind", "limit"}, {"max_concurrent", most}, {"batch", batch}, {"searcher", inner}},
                       line_space(), 1, 1);
}

std::unique_ptr<PointSearcher> repeated(int times, const char* kind = "random") {
  const Value inner{{"kind", kind}};
  return make_searcher({{"kind", "repeat"}, {"repeat", times}, {"searcher", inner}}, line_space(), 1, 1);
}

TEST(LimitTest, WaitsForAnEnd) {
  const auto searcher = limited(2, false);
  EXPECT_EQ(searcher->ask(0, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(1, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::wait);
  searcher->tell(5, {1});  // unknown
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::wait);
  searcher->tell(0, {1});
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(3, {}).kind, AskedKind::wait);
  searcher->tell(1, {});  // failed trials end too
  EXPECT_EQ(searcher->ask(3, {}).kind, AskedKind::point);
}

TEST(LimitTest, BatchesWaitForAllOfThem) {
  const auto searcher = limited(2, true);
  searcher->ask(0, {});
  searcher->ask(1, {});
  searcher->tell(1, {1});
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::wait);
  searcher->tell(0, {1});
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(3, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(4, {}).kind, AskedKind::wait);
}

TEST(LimitTest, PassesOnTheEndOfAGrid) {
  const auto searcher = make_searcher(
      {{"kind", "limit"}, {"max_concurrent", 9}, {"searcher", {{"kind", "grid"}, {"steps", 2}}}}, line_space(), 1, 1);
  EXPECT_EQ(searcher->ask(0, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(1, {}).kind, AskedKind::point);
  EXPECT_EQ(searcher->ask(2, {}).kind, AskedKind::exhausted);
}

TEST(RepeatTest, GivesEachPointSeveralTimes) {
  const auto searcher = repeated(3);
  std::vector<double> points;
  for (TrialNumber trial = 0; trial < 7; ++trial) points.push_back(searcher->ask(trial, {}).point[0]);
  EXPECT_EQ(points[0], points[1]);
  EXPECT_EQ(points[0], points[2]);
  EXPECT_NE(points[2], points[3]);
  EXPECT_EQ(points[3], points[5]);
  EXPECT_NE(points[5], points[6]);
}

/// The inner searcher must get the same points as one that hears of the means itself.
TEST(RepeatTest, TellsTheMeanOfThoseThatSucceed) {
  const auto searcher = repeated(3, "tpe");
  const auto plain = make_searcher({{"kind", "tpe"}}, line_space(), 1, 1);
  for (TrialNumber trial = 0; trial < 120; trial += 3) {
    const Point point = plain->ask(trial, {}).point;
    for (TrialNumber n = 0; n < 3; ++n) ASSERT_EQ(searcher->ask(trial + n, {}).point, point) << trial;
    const double value = std::abs(point[0] - 0.3);
    if (trial % 2) {
      searcher->tell(trial, {value + 1});
      searcher->tell(trial + 2, {value + 4});
      searcher->tell(trial + 1, {value + 1});
      plain->tell(trial, {value + 2});
    } else {
      searcher->tell(trial + 2, {value + 1});
      searcher->tell(trial, {});
      searcher->tell(trial + 1, {value + 3});
      plain->tell(trial, {value + 2});
    }
  }
}

TEST(RepeatTest, FailsIfAllFail) {
  const auto searcher = repeated(2, "tpe");
  const auto plain = make_searcher({{"kind", "tpe"}}, line_space(), 1, 1);
  for (TrialNumber trial = 0; trial < 60; trial += 2) {
    const Point point = plain->ask(trial, {}).point;
    for (TrialNumber n = 0; n < 2; ++n) ASSERT_EQ(searcher->ask(trial + n, {}).point, point) << trial;
    const bool fails = point[0] < 0.5;
    for (TrialNumber n = 0; n < 2; ++n)
      searcher->tell(trial + n, fails ? std::vector<double>{} : std::vector{point[0]});
    plain->tell(trial, fails ? std::vector<double>{} : std::vector{point[0]});
  }
}

TEST(RepeatTest, FollowsTheGridOfTheExperiment) {
  const auto searcher = repeated(3);
  EXPECT_EQ(searcher->ask(0, {0.25}).point[0], 0.25);
  EXPECT_EQ(searcher->ask(1, {0.75}).point[0], 0.75);
  EXPECT_EQ(searcher->ask(2, {0.75}).point[0], 0.75);
  for (TrialNumber trial = 0; trial < 3; ++trial) searcher->tell(trial, {1});
}

}  // namespace
}  // namespace lockstep::tune
