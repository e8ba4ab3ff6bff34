#include "sys/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "sys/sockets.h"

namespace lockstep::sys {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// Runs a shell script and gives what it printed.
std::string output_of(const std::string& script, SpawnOptions options = {}) {
  auto [read_end, write_end] = pipe_pair();
  options.argv = {"/bin/sh", "-c", script};
  options.fds.emplace_back(write_end.get(), 1);
  const Process process = spawn(options);
  write_end.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = ::read(read_end.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  EXPECT_EQ(take_exit(process.pidfd.get(), true), (ExitStatus{0, 0}));
  return text;
}

Process shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", script};
  return spawn(options);
}

bool ends_within(int pidfd, int milliseconds) {
  pollfd item{pidfd, POLLIN, 0};
  return ::poll(&item, 1, milliseconds) == 1;
}

/// Forks before anything else of the test runs in the child; `body` must end the process.
Process forked(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  return {pid, open_pidfd(pid)};
}

TEST(Spawn, GivesExitCodesAndSignals) {
  EXPECT_EQ(take_exit(shell("exit 3").pidfd.get(), true), (ExitStatus{3, 0}));
  EXPECT_EQ(take_exit(shell("kill -9 $$").pidfd.get(), true), (ExitStatus{0, SIGKILL}));
}

TEST(Spawn, StatusIsTakenOnce) {
  const Process process = shell("exec sleep 1000");
  EXPECT_EQ(take_exit(process.pidfd.get(), false), std::nullopt);
  send_signal(process.pidfd.get(), SIGTERM);
  EXPECT_EQ(take_exit(process.pidfd.get(), true), (ExitStatus{0, SIGTERM}));
  EXPECT_EQ(take_exit(process.pidfd.get(), true), std::nullopt);
  EXPECT_FALSE(send_signal(process.pidfd.get(), SIGTERM));
}

TEST(Spawn, EnvironmentAndDirectoryAreThoseGiven) {
  SpawnOptions options;
  options.env = {{"A", "1 2"}, {"PATH", "/usr/bin:/bin"}};
  options.cwd = "/usr";
  EXPECT_EQ(output_of("pwd; echo \"$A\"; echo \"[$HOME]\"", options), "/usr\n1 2\n[]\n");
  ::setenv("LOCKSTEP_TEST_VARIABLE", "inherited", 1);
  EXPECT_EQ(output_of("echo $LOCKSTEP_TEST_VARIABLE"), "inherited\n");
}

TEST(Spawn, OnlyMappedDescriptorsArePassed) {
  auto [a, b] = pipe_pair();
  const std::string list = "ls -v /proc/$$/fd";
  SpawnOptions options;
  options.fds = {{a.get(), 507}, {b.get(), 505}};
  EXPECT_EQ(output_of(list, options), output_of(list) + "505\n507\n");
}

TEST(Spawn, MappingsMayCross) {
  auto [a_read, a_write] = pipe_pair();
  auto [b_read, b_write] = pipe_pair();
  ASSERT_EQ(::write(a_write.get(), "a\n", 2), 2);
  ASSERT_EQ(::write(b_write.get(), "b\n", 2), 2);
  const int a = a_read.get(), b = b_read.get();
  SpawnOptions options;
  options.fds = {{a, b}, {b, a}};
  const std::string script = "read x <&" + std::to_string(a) + "; read y <&" + std::to_string(b) + "; echo $x$y";
  EXPECT_EQ(output_of(script, options), "ba\n");
}

TEST(Spawn, SessionIsItsOwnWhenAsked) {
  SpawnOptions options;
  options.own_session = true;
  EXPECT_EQ(output_of("set -- $(cat /proc/$$/stat); [ $$ = $5 ] && [ $$ = $6 ] && echo leads", options), "leads\n");
  EXPECT_EQ(output_of("set -- $(cat /proc/$$/stat); [ $$ = $6 ] || echo follows"), "follows\n");
}

TEST(Spawn, SignalsAreAsAtBirth) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  // 32 and 33 are the C library's own: nobody but it can reset them.
  EXPECT_THAT(output_of("grep SigIgn /proc/self/status"), ::testing::ContainsRegex("SigIgn:\t[0-9a-f]*[08]0000000\n"));
  ::signal(SIGPIPE, before);
}

TEST(Spawn, DiesWithItsParentWhenAsked) {
  auto [read_end, write_end] = pipe_pair();
  const Process parent = forked([fd = write_end.get()] {
    SpawnOptions options;
    options.argv = {"/bin/sleep", "1000"};
    options.fds = {{fd, 3}};
    options.parent_death_signal = SIGKILL;
    spawn(options);
  });
  write_end.reset();
  // The pipe's end comes when the last holder, the sleeper, is gone.
  EXPECT_TRUE(ends_within(read_end.get(), 10'000));
  take_exit(parent.pidfd.get(), true);
}

TEST(Spawn, ErrorsSayWhatFailed) {
  const auto message_of = [](SpawnOptions options) -> std::string {
    try {
      spawn(options);
      return "started";
    } catch (const EngineError& error) {
      return error.what();
    }
  };
  SpawnOptions options;
  options.argv = {"/no/such/program"};
  EXPECT_THAT(message_of(options), HasSubstr("could not execute \"/no/such/program\": No such file or directory"));
  options.argv = {"no-such-program"};
  EXPECT_THAT(message_of(options), HasSubstr("no program \"no-such-program\" in PATH"));
  options.argv = {"/etc/passwd"};
  EXPECT_THAT(message_of(options), HasSubstr("Permission denied"));
  options.argv = {"sh"};
  options.cwd = "/no/such/directory";
  EXPECT_THAT(message_of(options), HasSubstr("in the directory \"/no/such/directory\""));
  options.cwd.clear();
  options.fds = {{-1, 5}};
  EXPECT_THAT(message_of(options), HasSubstr("descriptors"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
}

TEST(Proc, TellsStateAndStart) {
  const auto self = process_status(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->state, 'R');
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_GT(self->start_ticks, 0u);
  EXPECT_EQ(process_status(1 << 30), std::nullopt);

  const Process child = shell("kill -STOP $$; exit 0");
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(process_status(child.pid)->state, 'T');
  EXPECT_EQ(process_status(child.pid)->parent, ::getpid());
  EXPECT_GE(process_status(child.pid)->start_ticks, self->start_ticks);
  send_signal(child.pidfd.get(), SIGCONT);
  take_exit(child.pidfd.get(), true);
}

TEST(Proc, NamesMayHoldAnything) {
  const Process child = forked([] {
    set_process_name("a) Z 1 (b");
    ::pause();
  });
  for (const Instant end = now() + 10s; now() < end;)
    if (process_status(child.pid)->state == 'S') break;
  EXPECT_EQ(process_status(child.pid)->parent, ::getpid());
  send_signal(child.pidfd.get(), SIGKILL);
  take_exit(child.pidfd.get(), true);
}

TEST(Proc, FindsDescendants) {
  auto [read_end, write_end] = pipe_pair();
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "sh -c 'sleep 1000 & echo $! $$; wait' & wait"};
  options.fds = {{write_end.get(), 1}};
  const Process top = spawn(options);
  char line[64] = {};
  ASSERT_GT(::read(read_end.get(), line, sizeof line - 1), 0);
  int sleeper = 0, middle = 0;
  ASSERT_EQ(std::sscanf(line, "%d %d", &sleeper, &middle), 2);
  EXPECT_THAT(children(::getpid()), Contains(top.pid));
  EXPECT_THAT(descendants(top.pid), testing::UnorderedElementsAre(middle, sleeper));
  EXPECT_THAT(descendants(::getpid()), Contains(sleeper));
  EXPECT_THAT(descendants(::getpid(), {middle}), Not(Contains(sleeper)));
  for (const int pid : {top.pid, middle, sleeper}) ::kill(pid, SIGKILL);
  take_exit(top.pidfd.get(), true);
}

TEST(Proc, ChildrenOfAllThreadsAreFound) {
  Process child;
  // The thread that forked must live on, or its children are passed to another.
  auto [read_end, write_end] = pipe_pair();
  std::thread other([&, fd = read_end.get()] {
    child = shell("exec sleep 1000");
    char byte;
    EXPECT_EQ(::read(fd, &byte, 1), 1);
  });
  for (const Instant end = now() + 10s; children(::getpid()).empty() && now() < end;) std::this_thread::yield();
  EXPECT_EQ(children(::getpid()).size(), 1u);
  ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
  other.join();
  send_signal(child.pidfd.get(), SIGKILL);
  take_exit(child.pidfd.get(), true);
}

TEST(Proc, MarkedProcessesAreKilledWhereverTheyAre) {
  auto [read_end, write_end] = pipe_pair();
  const std::string mark = "LOCKSTEP_TEST_MARK=" + std::to_string(::getpid());
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1000' &); exec sleep 1000"};
  options.env = {{"LOCKSTEP_TEST_MARK", std::to_string(::getpid())}, {"PATH", "/usr/bin:/bin"}};
  options.fds = {{write_end.get(), 1}};
  const Process marked = spawn(options);
  options.env = {{"LOCKSTEP_TEST_MARK", std::to_string(::getpid()) + "0"}, {"PATH", "/usr/bin:/bin"}};
  options.argv = {"sleep", "1000"};
  const Process other = spawn(options);
  char line[32] = {};
  ASSERT_GT(::read(read_end.get(), line, sizeof line - 1), 0);
  const Descriptor daemon = open_pidfd(std::atoi(line));
  EXPECT_TRUE(kill_marked(mark, now() + 20s, true));
  EXPECT_TRUE(ends_within(daemon.get(), 10'000)) << "it has a session of its own";
  EXPECT_FALSE(take_exit(marked.pidfd.get(), false)) << "it is of this session";
  EXPECT_TRUE(kill_marked(mark, now() + 20s));
  EXPECT_FALSE(take_exit(other.pidfd.get(), false)) << "its mark only begins like ours";
  for (const Process* each : {&marked, &other}) {
    send_signal(each->pidfd.get(), SIGKILL);
    take_exit(each->pidfd.get(), true);
  }
  EXPECT_TRUE(kill_marked(mark, now() + 20s));
}

TEST(Proc, ASubreaperAdoptsOrphans) {
  // In a process of its own: this one must not adopt for the rest of the tests.
  const Process reaper = forked([] {
    become_subreaper();
    const Process parent = shell("sleep 1000 & exit 0");
    take_exit(parent.pidfd.get(), true);
    const auto orphans = children(::getpid());
    if (orphans.size() != 1) ::_exit(1);
    const Descriptor orphan = open_pidfd(orphans[0]);
    send_signal(orphan.get(), SIGKILL);
    ends_within(orphan.get(), 10'000);
    if (take_exit(orphan.get(), false) != ExitStatus{0, SIGKILL}) ::_exit(2);
    ::_exit(children(::getpid()).empty() ? 0 : 3);
  });
  EXPECT_EQ(take_exit(reaper.pidfd.get(), true), (ExitStatus{0, 0}));
}

}  // namespace
}  // namespace lockstep::sys
