#include "driver/console.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>

#include "sys/descriptor.h"

namespace lockstep::driver {
namespace {

constexpr Instant kStart = Instant{} + 10s;

/// A terminal, or a file, that both outputs lead to; gives what was written since the last look.
class Paper {
 public:
  Paper() : file_(::memfd_create("paper", 0)) {}

  Screen terminal(int width = 80) const {
    return {.out = file_.get(),
            .err = file_.get(),
            .out_redraws = true,
            .err_redraws = true,
            .shared = true,
            .width = width};
  }
  Screen file() const { return {.out = file_.get(), .err = file_.get(), .shared = true}; }
  int fd() const { return file_.get(); }

  std::string take() {
    std::string text(1 << 20, '\0');
    const ssize_t size = ::pread(file_.get(), text.data(), text.size(), seen_);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    seen_ += static_cast<off_t>(text.size());
    return text;
  }

 private:
  sys::Descriptor file_;
  off_t seen_ = 0;
};

TEST(Console, FixedPartsOfTheProgressComeFirst) {
  const Value metrics = {{"epoch", 3}, {"loss", 0.25}, {"list", {1, 2}}, {"val", {{"loss", 0.5}}}};
  EXPECT_EQ(Console::progress_text(12, metrics, 4.0, Seconds{3.2}),
            "#12  4 reports/s  3.2s  epoch=3  loss=0.25  val/loss=0.5");
}

TEST(Console, WorkersAreCounted) {
  EXPECT_EQ(running_text({7}), "1 worker running (pid 7)");
  EXPECT_EQ(running_text({7, 8}), "2 workers running (pids 7, 8)");
  EXPECT_TRUE(running_text(std::vector<int>(300, 7)).ends_with("7, 7, ...)"));
}

TEST(Console, ShowsWhoseOutputIsWanted) {
  const auto shown = [](const std::string& whose) {
    Paper paper;
    Console console(1, whose, paper.file());
    for (int rank = 0; rank < 3; ++rank) console.output(rank, "x\n", kStart);
    console.line("a line");
    return paper.take();
  };
  EXPECT_EQ(shown("rank0"), "[rank 0] x\na line\n");
  EXPECT_EQ(shown("all"), "[rank 0] x\n[rank 1] x\n[rank 2] x\na line\n");
  EXPECT_EQ(shown("none"), "a line\n");
  EXPECT_EQ(shown("0,2"), "[rank 0] x\n[rank 2] x\na line\n");
  EXPECT_EQ(shown("12"), "a line\n");
}

TEST(Console, SilentWithoutVerbosity) {
  Paper paper;
  Console console(0, "all", paper.terminal());
  console.line("x");
  console.warning("y");
  console.output(0, "z\nz", kStart);
  console.progress(1, {{"a", 1}}, kStart, Seconds{1});
  console.finish();
  EXPECT_EQ(paper.take(), "");
}

// ---------------------------------------------------------------- unfinished lines

TEST(Console, UnfinishedLinesAreShownAtOnceInAFile) {
  Paper paper;
  Console console(1, "all", paper.file());
  console.output(0, ".", kStart);
  EXPECT_EQ(paper.take(), "[rank 0] .");
  console.output(0, ".", kStart);
  EXPECT_EQ(paper.take(), ".");
  console.output(0, "\r50%", kStart);
  EXPECT_EQ(paper.take(), "\r[rank 0] 50%");
  console.output(1, "whole\n", kStart);
  EXPECT_EQ(paper.take(), "\n[rank 1] whole\n") << "a file cannot be erased";
  console.output(0, "!", kStart);
  EXPECT_EQ(paper.take(), "[rank 0] 50%!") << "and is told what goes on";
  console.warning("x");
  EXPECT_EQ(paper.take(), "\nwarning: x\n");
  console.finish();
  EXPECT_EQ(paper.take(), "[rank 0] 50%!\n");
}

TEST(Console, FilesOfTheirOwnDoNotInterruptEachOther) {
  Paper out, err;
  Console console(1, "all", {.out = out.fd(), .err = err.fd()});
  console.output(0, "a", kStart);
  console.line("a line");
  console.progress(1, Value::object(), kStart, Seconds{1});
  console.output(0, "b", kStart);
  console.finish();
  EXPECT_EQ(out.take(), "[rank 0] ab\n");
  EXPECT_EQ(err.take(), "a line\n#1  1 reports/s  1.0s\n");
}

TEST(Console, ABarKeepsTheRowOfATerminalWhileItMoves) {
  Paper paper;
  Console console(1, "all", paper.terminal());
  console.output(0, "\r10%", kStart);
  EXPECT_EQ(paper.take(), "[rank 0] \r[rank 0] 10%");
  console.output(1, "\r11%", kStart);
  EXPECT_EQ(paper.take(), "") << "one bar at a time";
  console.output(1, "\r12%\ndone", kStart);
  EXPECT_EQ(paper.take(), "\r\x1b[2K[rank 1] 11%\r[rank 1] 12%\n[rank 0] 10%") << "whole lines go above it";
  console.line("a line");
  EXPECT_EQ(paper.take(), "\r\x1b[2Ka line\n[rank 0] 10%");
  console.output(1, ".", kStart + 2s);
  EXPECT_EQ(paper.take(), "\r\x1b[2K[rank 1] done.") << "another one's, when the first has stopped";
  console.output(0, "\r20%", kStart + 4s);
  EXPECT_EQ(paper.take(), "\r\x1b[2K[rank 0] 10%\r[rank 0] 20%");
  console.finish();
  EXPECT_EQ(paper.take(), "\n[rank 1] done.\n");
}

TEST(Console, AWideLineIsNotErased) {
  Paper paper;
  Console console(1, "all", paper.terminal(20));
  console.output(0, "a line wider than the terminal", kStart);
  paper.take();
  console.line("x");
  EXPECT_EQ(paper.take(), "\nx\n[rank 0] a line wider than the terminal");
}

TEST(Console, ALineThatNeverEndsIsCut) {
  Paper paper;
  Console console(1, "all", paper.file());
  for (int i = 0; i < 3; ++i) console.output(0, std::string(40 << 10, 'x'), kStart);
  const std::string shown = paper.take();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), 'x'), 120 << 10);
}

TEST(Console, ARankThatStartsAgainBeginsALine) {
  Paper paper;
  Console console(1, "all", paper.file());
  console.output(0, "half\x1b[3", kStart);
  console.end_lines();
  console.output(0, "hello\n", kStart);
  EXPECT_EQ(paper.take(), "[rank 0] half?[3\n[rank 0] hello\n");
}

TEST(Console, WhatOthersWroteCannotCommandTheTerminal) {
  Paper paper;
  Console console(1, "all", paper.terminal());
  console.output(0, "\x1b]0;x\x07\x1b[2J\n", kStart);
  console.warning("rank 0 raised \x1b[2J\n\tat x");
  EXPECT_EQ(paper.take(), "[rank 0] ?]0;x?\nwarning: rank 0 raised ?[2J\n\tat x\n");
}

// ---------------------------------------------------------------- progress

TEST(Console, ProgressAndABarShareTheRow) {
  Paper paper;
  Console console(1, "all", paper.terminal());
  const auto report = [&](int iteration, Instant now) {
    console.progress(iteration, Value::object(), now, Seconds{1});
  };
  console.output(0, "\r10%", kStart);
  paper.take();
  report(1, kStart);
  EXPECT_EQ(paper.take(), "\r\x1b[2K#1  1 reports/s  1.0s\n[rank 0] 10%") << "a line above the bar";
  report(2, kStart + 500ms);
  EXPECT_EQ(paper.take(), "") << "but not too many";
  report(3, kStart + 5s);
  EXPECT_TRUE(paper.take().starts_with("\r\x1b[2K\r\x1b[2K#3  ")) << "in place of a bar that stands still";
  console.output(0, "\r20%", kStart + 6s);
  EXPECT_EQ(paper.take(), "\r\x1b[2K[rank 0] 10%\r[rank 0] 20%");
  console.output(0, "\n", kStart + 6s);
  const std::string end = paper.take();
  EXPECT_TRUE(end.starts_with("\n\r\x1b[2K#3  ")) << end;
  console.output(0, "\r30%\r   \r", kStart + 6s);
  paper.take();
  report(4, kStart + 6s);
  EXPECT_TRUE(paper.take().starts_with("\r\x1b[2K\r\x1b[2K#4  ")) << "in place of a bar that was wiped out";
}

TEST(Console, TheRateIsRightFromTheFirstReportsOn) {
  Paper paper;
  Console console(1, "all", paper.terminal(200));
  const auto at = [&](int iteration, int milliseconds) {
    console.progress(iteration, Value::object(), kStart + std::chrono::milliseconds(milliseconds),
                     Seconds{2 + milliseconds / 1000.0});
  };
  for (int i = 0; i <= 30; ++i) at(1 + i, 10 * i);          // 100/s
  for (int i = 0; i <= 30; ++i) at(5 + i, 1000 + 100 * i);  // a new attempt: 10/s
  console.finish();
  const std::string shown = paper.take();
  EXPECT_NE(shown.find("#1  0.5 reports/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#11  100 reports/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#31  100 reports/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#6  10 reports/s"), std::string::npos) << shown;
  EXPECT_NE(shown.find("#35  10 reports/s"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("  -"), std::string::npos) << shown;
}

TEST(Console, ATerminalsProgressLineIsRedrawnInPlaceAndCutToItsWidth) {
  Paper paper;
  Console console(1, "all", paper.terminal(36));
  console.progress(1, {{"loss", 0.5}, {"\u00e4\u00e4\u00e4\u00e4", 1}}, kStart, Seconds{1});
  console.progress(2, {{"loss", 0.25}, {"a_long_name", 1}}, kStart + 10s, Seconds{11});
  console.finish();
  EXPECT_EQ(paper.take(),
            "\r\x1b[2K#1  1 reports/s  1.0s  loss=0.5  \u00e4\u00e4"
            "\r\x1b[2K#2  0.1 reports/s  11.0s  loss=0.25"
            "\r\x1b[2K#2  0.1 reports/s  11.0s  loss=0.25\n");
}

TEST(Console, PlainProgressIsThrottledButTheLastIsShown) {
  Paper paper;
  Console console(1, "all", paper.file());
  for (int i = 1; i <= 100; ++i)
    console.progress(i, Value::object(), kStart + std::chrono::milliseconds(i), Seconds{1});
  console.finish();
  const std::string shown = paper.take();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 2);
  EXPECT_NE(shown.find("#1 "), std::string::npos);
  EXPECT_NE(shown.find("#100 "), std::string::npos);
}

// ---------------------------------------------------------------- several runs

TEST(Console, OneRunHasTheLastRowAndOthersWriteAboveIt) {
  Paper paper;
  Console first(1, "all", paper.terminal(), "first"), second(1, "all", paper.terminal(), "second");
  first.progress(1, {{"a", 1}}, kStart, Seconds{1});
  paper.take();
  second.line("a line");
  EXPECT_EQ(paper.take(), "\r\x1b[2K[second] a line\n\r\x1b[2K#1  1 reports/s  1.0s  a=1");
  second.progress(1, {{"b", 2}}, kStart, Seconds{1});
  EXPECT_EQ(paper.take(), "\r\x1b[2K[second] #1  1 reports/s  1.0s  b=2\n\r\x1b[2K#1  1 reports/s  1.0s  a=1");
  second.progress(2, {{"b", 3}}, kStart + 500ms, Seconds{1.5});
  EXPECT_EQ(paper.take(), "") << "a line now and then";
  first.line("mine");
  EXPECT_EQ(paper.take(), "\r\x1b[2Kmine\n\r\x1b[2K#1  1 reports/s  1.0s  a=1");
}

TEST(Console, AnotherRunsUnfinishedLinesWait) {
  Paper paper;
  Console first(1, "all", paper.terminal(), "first"), second(1, "all", paper.terminal(), "second");
  first.output(0, "bar 50%", kStart);
  EXPECT_EQ(paper.take(), "[rank 0] bar 50%");
  second.output(0, "hel", kStart);
  second.output(0, "lo\nmore", kStart);
  const std::string text = paper.take();
  EXPECT_NE(text.find("[second] [rank 0] hello\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("more"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("[rank 0] bar 50%")) << text;
  second.finish();
  EXPECT_NE(paper.take().find("[second] [rank 0] more\n"), std::string::npos);
}

TEST(Console, TheLastRowGoesToAnotherRunWhenItsOwnerIsGone) {
  Paper paper;
  auto first = std::make_unique<Console>(1, "all", paper.terminal(), "first");
  Console second(1, "all", paper.terminal(), "second");
  first->line("x");
  second.line("y");
  EXPECT_EQ(paper.take(), "x\n[second] y\n");
  first->finish();
  first.reset();
  second.line("z");
  EXPECT_EQ(paper.take(), "z\n");
}

TEST(Console, ASilentRunTakesNoRow) {
  Paper paper;
  Console silent(0, "all", paper.terminal(), "silent"), second(1, "all", paper.terminal(), "second");
  silent.progress(1, {{"a", 1}}, kStart, Seconds{1});
  second.line("y");
  silent.alert("careful");
  EXPECT_EQ(paper.take(), "y\nlockstep: warning: careful\n");
}

}  // namespace
}  // namespace lockstep::driver
