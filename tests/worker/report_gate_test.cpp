#include "worker/report_gate.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep::worker {
namespace {

/// One report; whether the function is to end there.
bool report(ReportGate& gate) {
  ReportGate::Passage passage(gate);
  passage.accept([] {});
  return passage.wait();
}

TEST(ReportGate, ReportsReturnAtOnceUntilTheyAreHeld) {
  ReportGate gate(false, true, 0);
  EXPECT_FALSE(report(gate));
  EXPECT_FALSE(report(gate));
  EXPECT_EQ(gate.hold(), 3);
  auto third = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(third.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(gate.hold(), 3) << "it is in the report after which it can end";
  gate.end_after(4);
  EXPECT_FALSE(third.get());
  EXPECT_TRUE(report(gate));
}

TEST(ReportGate, WhoAsksEndsByHimself) {
  ReportGate gate(false, true, 0);
  EXPECT_FALSE(gate.is_over());
  gate.hold();
  gate.end_after(1);
  EXPECT_FALSE(report(gate));
  EXPECT_TRUE(gate.is_over());
}

TEST(ReportGate, ReportsPauseUntilTheyMayPass) {
  ReportGate gate(false, true, 0);
  EXPECT_FALSE(report(gate));
  EXPECT_EQ(gate.pause(), 2);
  auto second = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  gate.let_pass(2);
  EXPECT_FALSE(second.get());
  auto third = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(third.wait_for(20ms), std::future_status::timeout);
  gate.let_pass(-1);
  EXPECT_FALSE(third.get());
  EXPECT_FALSE(gate.is_paused());
  EXPECT_FALSE(report(gate));
}

TEST(ReportGate, WhoIsToStartAgainDoesNotEndByHimself) {
  ReportGate gate(false, true, 0);
  EXPECT_FALSE(gate.is_over());
  gate.pause();
  gate.end_after(1, true);
  EXPECT_TRUE(report(gate));
  EXPECT_FALSE(gate.is_over());
}

TEST(ReportGate, RankZeroWaitsForAnAnswerToEachReport) {
  ReportGate gate(true, true, 0);
  auto first = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(first.wait_for(20ms), std::future_status::timeout);
  gate.go_on(1);
  EXPECT_FALSE(first.get());
  auto second = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(gate.hold(), 2);
  gate.end_after(2);
  EXPECT_TRUE(second.get());
}

TEST(ReportGate, ARankThatIsAheadOfRankZeroDoesNotWaitForIt) {
  ReportGate gate(true, false, 0);
  auto first = std::async(std::launch::async, [&] { return report(gate); });
  EXPECT_EQ(first.wait_for(20ms), std::future_status::timeout);
  gate.go_on(1);
  EXPECT_FALSE(first.get());
  ReportGate ahead(true, false, 0);
  auto late = std::async(std::launch::async, [&] { return report(ahead) || report(ahead) || report(ahead); });
  EXPECT_EQ(late.wait_for(8s), std::future_status::ready) << "it waits once";
  EXPECT_FALSE(late.get());
}

TEST(ReportGate, NothingIsAcceptedOnceItIsSettled) {
  ReportGate gate(false, true, 0);
  gate.settle();
  bool accepted = false;
  auto late = std::async(std::launch::async, [&] {
    ReportGate::Passage passage(gate);
    passage.accept([&] { accepted = true; });
  });
  EXPECT_EQ(late.wait_for(20ms), std::future_status::timeout);
  EXPECT_FALSE(accepted);
  gate.open();
  late.get();
}

}  // namespace
}  // namespace lockstep::worker
