#include "driver/report_rows.h"

#include <gtest/gtest.h>

#include "wire/codec.h"

namespace lockstep::driver {
namespace {

wire::Report report(int i) {
  wire::Report made;
  made.metrics = wire::encode_value({{"i", i}});
  return made;
}

/// The rows that are due now, as text.
std::string rows(ReportRows& of) {
  std::string out;
  while (const auto row = of.next()) {
    for (const auto& each : *row) out += each ? wire::decode_value(each->metrics)["i"].dump() + " " : "- ";
    out += "| ";
  }
  return out;
}

TEST(ReportRows, WaitsForEveryRank) {
  ReportRows reports(2);
  for (int i = 0; i < 3; ++i) reports.add(1, report(i));
  EXPECT_EQ(rows(reports), "");
  reports.add(0, report(0));
  reports.add(0, report(1));
  EXPECT_EQ(rows(reports), "0 0 | 1 1 | ");
}

TEST(ReportRows, ARankThatBeginsAnewJoinsTheNextRow) {
  ReportRows reports(3);
  for (int rank : {0, 1, 2}) reports.add(rank, report(0));
  EXPECT_EQ(rows(reports), "0 0 0 | ");
  reports.add(0, report(1));
  reports.add(0, report(2));
  reports.add(2, report(1));
  reports.restart(1);
  EXPECT_EQ(rows(reports), "1 - 1 | 2 - - | ");
  reports.add(2, report(2));  // its row has gone out
  for (int rank : {0, 1, 2}) reports.add(rank, report(3));
  EXPECT_EQ(rows(reports), "3 3 3 | ");
}

TEST(ReportRows, WhatARankHadReportedBeforeItBeginsAnewIsDropped) {
  ReportRows reports(2);
  reports.add(1, report(0));
  reports.restart(1);
  EXPECT_EQ(rows(reports), "");
  reports.add(0, report(0));
  reports.add(1, report(7));
  EXPECT_EQ(rows(reports), "0 7 | ");
}

TEST(ReportRows, RanksThatEndedAreNotWaitedFor) {
  ReportRows reports(2);
  reports.add(0, report(0));
  reports.add(0, report(1));
  reports.add(1, report(0));
  EXPECT_EQ(rows(reports), "0 0 | ");
  reports.finish(1);
  EXPECT_EQ(rows(reports), "1 - | ");
  reports.finish(0);
  EXPECT_EQ(rows(reports), "");
}

/// A driver that was busy finds the backlog of one rank before that of the other.
TEST(ReportRows, ALongBacklogOfOneRankIsKept) {
  ReportRows reports(2);
  for (int i = 0; i < 100'000; ++i) reports.add(1, report(i));
  for (int i = 0; i < 100'000; ++i) {
    EXPECT_FALSE(reports.next()) << i;
    reports.add(0, report(i));
    const auto row = reports.next();
    ASSERT_TRUE(row && (*row)[0]->metrics == (*row)[1]->metrics) << i;
  }
}

TEST(ReportRows, BeyondTheBoundRowsGoWithoutTheRankThatIsBehindAndStayAligned) {
  const std::size_t one = report(1).metrics.size() + sizeof(wire::Report);
  ReportRows reports(2, 3 * one);
  for (int i = 0; i < 5; ++i) reports.add(1, report(i));
  EXPECT_EQ(rows(reports), "- 0 | - 1 | ");
  for (int i = 0; i < 5; ++i) reports.add(0, report(i));
  EXPECT_EQ(rows(reports), "2 2 | 3 3 | 4 4 | ");
}

}  // namespace
}  // namespace lockstep::driver
