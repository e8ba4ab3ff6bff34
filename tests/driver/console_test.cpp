#include "driver/console.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

TEST(Console, ProgressTextHasIterationMetricsRateAndTime) {
  const std::string text =
      Console::progress_text(12, {{"epoch", 3}, {"loss", 0.25}, {"list", {1, 2}}}, 4.0, Seconds{3.2});
  EXPECT_EQ(text, "#12  epoch=3  loss=0.25  4/s  3.2s");
}

TEST(Console, PlainOutputHasWholeLinesWithTheRank) {
  testing::internal::CaptureStdout();
  Console console(1, false, 80);
  console.output(2, "hello\nwor");
  console.output(2, "ld\n");
  console.output(0, "no end");
  console.finish();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[rank 2] hello\n[rank 2] world\n[rank 0] no end\n");
}

TEST(Console, SilentWithoutVerbosity) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Console console(0, false, 80);
  console.line("x");
  console.warning("y");
  console.output(0, "z\n");
  console.progress(1, {{"a", 1}}, Instant{} + 10s, Seconds{1});
  console.finish();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Console, TheRateIsRightFromTheFirstReportsOn) {
  testing::internal::CaptureStderr();
  Console console(1, true, 200);
  const auto at = [&](int iteration, int milliseconds) {
    console.progress(iteration, Value::object(), Instant{} + 10s + std::chrono::milliseconds(milliseconds),
                     Seconds{2 + milliseconds / 1000.0});
  };
  for (int i = 0; i <= 30; ++i) at(1 + i, 10 * i);          // 100/s
  for (int i = 0; i <= 30; ++i) at(5 + i, 1000 + 100 * i);  // a new attempt: 10/s
  console.finish();
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("#1  0.5/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#11  100/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#31  100/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#6  10/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#35  10/s"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("  -"), std::string::npos) << shown;
}

TEST(Console, ATerminalsProgressLineIsRedrawnInPlaceAndCutToItsWidth) {
  testing::internal::CaptureStderr();
  Console console(1, true, 20);
  console.progress(1, {{"loss", 0.5}, {"a_long_name", 1}}, Instant{} + 10s, Seconds{1});
  console.progress(2, {{"loss", 0.25}, {"a_long_name", 1}}, Instant{} + 20s, Seconds{11});
  console.finish();
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("\r\x1b[2K#1  loss=0.5"), std::string::npos);
  EXPECT_NE(shown.find("\r\x1b[2K#2  loss=0.25"), std::string::npos);
  EXPECT_EQ(shown.find("a_long_name"), std::string::npos);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1);
}

TEST(Console, PlainProgressIsThrottledButTheLastIsShown) {
  testing::internal::CaptureStderr();
  Console console(1, false, 80);
  for (int i = 1; i <= 100; ++i)
    console.progress(i, Value::object(), Instant{} + 10s + std::chrono::milliseconds(i), Seconds{1});
  console.finish();
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 2);
  EXPECT_NE(shown.find("#1 "), std::string::npos);
  EXPECT_NE(shown.find("#100 "), std::string::npos);
}

}  // namespace
}  // namespace lockstep::driver
