#include "sys/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep::sys {
namespace {

using Then = SignalWatch::Then;

int handled = 0;
int handled_last = 0;

/// Counts what a handler of the user's gets.
class UsersHandler {
 public:
  UsersHandler() {
    handled = handled_last = 0;
    before_ = std::signal(SIGINT, [](int signal) {
      ++handled;
      handled_last = signal;
    });
  }
  ~UsersHandler() { std::signal(SIGINT, before_); }

 private:
  void (*before_)(int);
};

TEST(SignalWatchTest, TellsWhatCameAndPutsTheOldHandlersBack) {
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    SignalWatch watch;
    EXPECT_EQ(watch.take(), 0);
    raise(SIGTERM);
    raise(SIGINT);
    EXPECT_EQ(watch.take(), SIGTERM);
    EXPECT_EQ(watch.take(), SIGINT);
    EXPECT_EQ(watch.take(), 0);
  }
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(SignalWatchTest, WhatIsIgnoredStaysSoAndTheOtherIsHandled) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    SignalWatch watch, other;
    raise(SIGINT);
    EXPECT_EQ(watch.take(), 0);
    raise(SIGTERM);
    EXPECT_EQ(watch.take(), SIGTERM);
    EXPECT_EQ(other.take(), SIGTERM);
  }
  EXPECT_EQ(std::signal(SIGINT, before), SIG_IGN);
}

TEST(SignalWatchTest, AllGetItWhateverTheOrderInWhichTheyEnd) {
  const UsersHandler users;
  auto first = std::make_unique<SignalWatch>();
  auto second = std::make_unique<SignalWatch>();
  first.reset();
  auto third = std::make_unique<SignalWatch>();
  raise(SIGINT);
  EXPECT_EQ(second->take(), SIGINT);
  EXPECT_EQ(third->take(), SIGINT);
  EXPECT_EQ(third->take(), 0);
  second.reset();
  third.reset();
  EXPECT_EQ(handled, 0);
  raise(SIGINT);
  EXPECT_EQ(handled, 1) << "the handler before is back";
}

TEST(SignalWatchTest, OneThatComesWhileOthersDealWithASignalGetsItToo) {
  auto first = std::make_unique<SignalWatch>();
  raise(SIGTERM);
  {
    SignalWatch late;
    EXPECT_EQ(late.take(), SIGTERM);
  }
  first.reset();
  SignalWatch after;
  EXPECT_EQ(after.take(), 0) << "it is over";
}

TEST(SignalWatchTest, LaterIsWhenTheLastOneIsGone) {
  const UsersHandler users;
  auto first = std::make_unique<SignalWatch>(Then::later);
  auto second = std::make_unique<SignalWatch>(Then::later);
  raise(SIGINT);
  first.reset();
  EXPECT_EQ(handled, 0);
  second.reset();
  EXPECT_EQ(handled, 1);
  EXPECT_EQ(handled_last, SIGINT);
}

TEST(SignalWatchTest, AtOnceCallsTheHandlerBefore) {
  const UsersHandler users;
  {
    SignalWatch watch(Then::at_once);
    raise(SIGINT);
    EXPECT_EQ(handled, 1);
    EXPECT_EQ(watch.take(), SIGINT);
    SignalWatch dealing;
    raise(SIGINT);
    EXPECT_EQ(handled, 1) << "somebody deals with it";
  }
  EXPECT_EQ(handled, 1);
}

TEST(SignalWatchTest, ADefaultActionWaitsForTheLastOne) {
  const auto child = [] {
    std::signal(SIGTERM, SIG_DFL);
    auto first = std::make_unique<SignalWatch>(Then::at_once);
    auto second = std::make_unique<SignalWatch>(Then::at_once);
    raise(SIGTERM);
    first.reset();
    if (second->take() != SIGTERM) _exit(3);
    second.reset();
    _exit(4);
  };
  const pid_t pid = fork();
  if (pid == 0) child();
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(SignalWatchTest, AForkHasItsOwn) {
  SignalWatch ours;
  const pid_t pid = fork();
  if (pid == 0) {
    SignalWatch theirs;
    raise(SIGINT);
    _exit(theirs.take() == SIGINT ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ours.take(), 0) << "the fork's signal is not ours";
}

TEST(SignalWatchTest, AForkWithoutAWatchDiesOfASignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto before = std::signal(signal, SIG_DFL);
    SignalWatch ours;
    const pid_t pid = fork();
    if (pid == 0) {
      raise(signal);
      _exit(7);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    std::signal(signal, before);
  }
}

TEST(SignalWatchTest, AForkWithoutAWatchHasTheHandlerOfBefore) {
  const UsersHandler user;
  SignalWatch ours;
  const pid_t pid = fork();
  if (pid == 0) {
    raise(SIGINT);
    raise(SIGINT);
    _exit(handled);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(ours.take(), 0);
}

TEST(SignalWatchTest, OneAloneCanBeGivenASignal) {
  const UsersHandler user;
  {
    SignalWatch one(Then::later), other(Then::later);
    one.put(SIGINT);
    EXPECT_EQ(one.take(), SIGINT);
    EXPECT_EQ(other.take(), 0);
  }
  EXPECT_EQ(handled, 0) << "nothing is raised for it";
}

TEST(SignalWatchTest, ThreadsMakeThemAtOnce) {
  SignalWatch kept;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([] {
      for (int n = 0; n < 200; ++n) {
        SignalWatch watch;
        if (n % 50 == 0) raise(SIGINT);
      }
    });
  for (auto& thread : threads) thread.join();
  int count = 0;
  while (kept.take() == SIGINT) ++count;
  EXPECT_EQ(count, 32);
}

}  // namespace
}  // namespace lockstep::sys
