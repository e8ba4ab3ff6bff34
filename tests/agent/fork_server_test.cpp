// Workers that the real fork server forks. Its lockstep._worker is a double that runs the payload, which is Python
// source.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "agent_harness.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr const char* kWorkerDouble = R"(
import os, socket, struct, sys
def main(socket_fd, payload_fd, stacks_fd):
    sys.stdout.reconfigure(line_buffering=True)
    channel = socket.socket(fileno=socket_fd)
    size, = struct.unpack("<I", channel.recv(4, socket.MSG_WAITALL))
    begin = channel.recv(size, socket.MSG_WAITALL)
    rank = begin[begin.index(b"\x64rank") + 5]
    source = os.pread(payload_fd, os.fstat(payload_fd).st_size, 0)
    exec(compile(source, "payload", "exec"), globals() | locals())
    sys.stdout.flush()
    os._exit(0)
)";

/// The interpreter itself, not a wrapper that takes its time; empty when there is none that serves.
const std::string& interpreter() {
  static const std::string path = [] {
    std::string text(4096, '\0');
    FILE* out = ::popen("python3 -c 'import os, sys; os.pidfd_open; print(sys.executable, end=\"\")' 2>/dev/null", "r");
    text.resize(std::fread(text.data(), 1, text.size(), out));
    ::pclose(out);
    return text;
  }();
  return path;
}

class ForkServers : public AgentHarness {
 protected:
  void SetUp() override {
    ASSERT_FALSE(interpreter().empty()) << "needs python3 with os.pidfd_open";
    char name[] = "/tmp/lockstep-test-XXXXXX";
    root_ = ::mkdtemp(name);
    fs::create_directory(root_ / "lockstep");
    std::ofstream(root_ / "lockstep" / "__init__.py");
    std::ofstream(root_ / "lockstep" / "_worker.py") << kWorkerDouble;
    std::ofstream(root_ / "broken.py") << "raise RuntimeError('no luck today')\n";
    fs::create_symlink(LOCKSTEP_FORK_SERVER_PATH, root_ / "lockstep" / "_fork_server.py");
    AgentHarness::SetUp();
  }

  void TearDown() override {
    AgentHarness::TearDown();
    if (!root_.empty()) fs::remove_all(root_);
  }

  wire::Configure python(std::vector<std::string> modules = {"json"}) const {
    wire::Configure configure;
    configure.program = {interpreter(), "-m", "lockstep._fork_server"};
    configure.program.insert(configure.program.end(), modules.begin(), modules.end());
    configure.env = {{"PATH", std::getenv("PATH")}, {"PYTHONPATH", root_.string()}, {"PYTHONDONTWRITEBYTECODE", "1"}};
    if (const char* home = std::getenv("HOME")) configure.env["HOME"] = home;
    return configure;
  }

  void configure_python() { configure(python()); }

  /// Starts `ranks` workers that run the source.
  void start_python(int attempt, std::size_t ranks, const std::string& source) {
    start(attempt, std::vector<Commands>(ranks), Bytes(source.begin(), source.end()));
  }

  /// One attempt of one rank, to its end; what it printed.
  std::string run_python(const std::string& source) {
    start_python(0, 1, source);
    expect<wire::AttemptEnded>();
    return log_.at(0);
  }

  fs::path root_;
};

TEST_F(ForkServers, ForkEveryRank) {
  configure_python();
  start_python(7, 4, "print('rank', rank, os.getpid())\nos._exit(10 + rank)");
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 7);
  for (int i = 0; i < 4; ++i) {
    const auto rank = static_cast<std::size_t>(i);
    EXPECT_EQ(log_[rank], "rank " + std::to_string(i) + " " + std::to_string(pids_[rank]) + "\n");
    EXPECT_EQ(exits_[rank].code, 10 + i);
    EXPECT_EQ(exits_[rank].signal, 0);
  }
}

TEST_F(ForkServers, ForkMoreThanASocketQueues) {
  configure_python();
  start_python(0, 20, "os._exit(rank)");
  expect<wire::AttemptEnded>();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(exits_[static_cast<std::size_t>(i)].code, i);
}

TEST_F(ForkServers, AServerThatTakesNoRequestsRefusesThem) {
  std::ofstream(root_ / "deaf.py") << R"(
import os, socket, time
channel = socket.socket(fileno=int(os.environ["LOCKSTEP_FORK_SERVER_FD"]))
channel.shutdown(socket.SHUT_RD)
channel.send(b"ready")
time.sleep(600)
)";
  auto deaf = python();
  deaf.program = {interpreter(), (root_ / "deaf.py").string()};
  configure(deaf);
  start_python(0, 2, "pass");
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("could not be forked"));
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 0);
}

/// It tells the pid of its worker only when the test says so. The worker sends its pid in answer to each attempt.
TEST_F(ForkServers, AWorkerIsKeptBeforeItsPidIsKnown) {
  std::ofstream(root_ / "late.py") << R"(
import os, socket, struct
agent = socket.socket(fileno=3)
agent.send(b"ready")
packet, fds, _, _ = socket.recv_fds(agent, 100, 4)
pid = os.fork()
if pid == 0:
    agent.close()
    channel = socket.socket(fileno=fds[0])
    while size := channel.recv(4, socket.MSG_WAITALL):
        if b"begin" in channel.recv(*struct.unpack("<I", size), socket.MSG_WAITALL):
            said = str(os.getpid()).encode()
            channel.sendall(struct.pack("<I", len(said)) + said)
    os._exit(0)
for fd in fds:
    os.close(fd)
open("go").read()
socket.send_fds(agent, [b"started %s %d" % (packet.split()[1], pid)], [os.pidfd_open(pid)])
os.waitpid(pid, 0)
agent.send(b"exited %d 0 9" % pid)
agent.recv(1)
)";
  ASSERT_EQ(::mkfifo((root_ / "go").c_str(), 0600), 0);
  auto late = python();
  late.program = {interpreter(), (root_ / "late.py").string()};
  late.cwd = root_;
  configure(late);
  const auto pid_of_attempt = [&](int attempt) {
    start(attempt, {{}}, {}, true);
    const Bytes said = expect<wire::FromWorker>().message;
    return std::stoi(std::string(said.begin(), said.end()));
  };
  const int pid = pid_of_attempt(0);
  send(wire::KeepWorkers{0});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 0);
  send(wire::CountKept{});
  EXPECT_EQ(expect<wire::KeptWorkers>().alive, 1);
  EXPECT_EQ(pid_of_attempt(1), pid) << "it was started again, although it lived";
  EXPECT_EQ(pids_[0], 0);
  std::ofstream(root_ / "go") << "go";
  const auto started = expect<wire::WorkerStarted>();
  EXPECT_EQ(started.pid, pid);
  EXPECT_EQ(started.attempt, 1);
  send(wire::StopAttempt{1, false, 0});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 1);
}

TEST_F(ForkServers, SignalsAreTold) {
  configure_python();
  run_python("import signal\nprint('last words')\nos.kill(os.getpid(), signal.SIGSEGV)");
  EXPECT_EQ(exits_[0].signal, SIGSEGV);
  EXPECT_EQ(log_[0], "last words\n");
}

TEST_F(ForkServers, ErrorsOfTheWorkerItselfAreLogged) {
  configure_python();
  EXPECT_THAT(run_python("1 / 0"), AllOf(HasSubstr("payload"), HasSubstr("ZeroDivisionError")));
  EXPECT_EQ(exits_[0].code, 1);
}

TEST_F(ForkServers, TheChildIsAPlainProcess) {
  configure_python();
  EXPECT_EQ(run_python("print(os.getsid(0) == os.getpid(), sys.stdin.read() == '')"), "True True\n");
  EXPECT_EQ(run_python("print(sorted(set(map(int, os.listdir('/proc/self/fd'))) - {3}) == "
                       "sorted({0, 1, 2, socket_fd, payload_fd, stacks_fd} - {3}))"),
            "True\n");
  EXPECT_EQ(run_python("import signal\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"),
            "True\n");
  EXPECT_EQ(run_python("import threading\nprint(threading.active_count(), len(os.listdir('/proc/self/task')))"),
            "1 1\n");
  EXPECT_EQ(run_python("print(os.get_inheritable(socket_fd), os.get_inheritable(stacks_fd))"), "False False\n");
  EXPECT_EQ(run_python("print('json' in sys.modules, 'LOCKSTEP_FORK_SERVER_FD' in os.environ)"), "True False\n");
}

TEST_F(ForkServers, RandomNumbersDifferBetweenRanks) {
  configure_python();
  start_python(0, 2, "import random\nprint(random.random())");
  expect<wire::AttemptEnded>();
  EXPECT_NE(log_[0], log_[1]);
}

TEST_F(ForkServers, StayWarm) {
  configure_python();
  const std::string parent = run_python("print(os.getppid())");
  EXPECT_EQ(run_python("print(os.getppid())"), parent);
  configure_python();
  EXPECT_EQ(run_python("print(os.getppid())"), parent);
  auto other = python();
  other.env["ANOTHER"] = "1";
  configure(other);
  EXPECT_NE(run_python("print(os.getppid())"), parent);
  configure_python();
  EXPECT_EQ(run_python("print(os.getppid())"), parent);
}

TEST_F(ForkServers, FailedImportsAreTold) {
  send(python({"json", "broken"}));
  EXPECT_THAT(expect<wire::AgentFailed>().message,
              AllOf(HasSubstr("Traceback"), HasSubstr("broken.py"), HasSubstr("no luck today")));
  configure_python();
  EXPECT_EQ(run_python("print('well')"), "well\n");
}

TEST_F(ForkServers, OptionalModulesMayBeMissing) {
  send(python({"no_such_module?", "json"}));
  expect<wire::AgentReady>();
  send(python({"no_such_module"}));
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("No module named 'no_such_module'"));
}

TEST_F(ForkServers, ThatEndEarlyAreTold) {
  auto configure = python();
  configure.program = {"sh", "-c", "exit 7"};
  send(configure);
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("ended with code 7 before"));
  configure.program = {"/no/such/python"};
  send(configure);
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("/no/such/python"));
  configure_python();
}

TEST_F(ForkServers, ThatRefuseEndTheAttempt) {
  auto configure = python();
  configure.program = {interpreter(), "-c",
                       "import socket\ns = socket.socket(fileno=3)\ns.send(b'ready')\n"
                       "while packet := s.recv(100): s.send(b'refused ' + packet.split()[1] + b' no more processes')"};
  send(configure);
  expect<wire::AgentReady>();
  start_python(0, 6, "");
  EXPECT_THAT(expect<wire::AgentFailed>().message, HasSubstr("rank 0 could not be forked: no more processes"));
  expect<wire::AttemptEnded>();
}

TEST_F(ForkServers, DeadOnesAreReplaced) {
  configure_python();
  start_python(1, 3, "print(os.getppid())\nimport time\ntime.sleep(1000)");
  for (std::size_t i = 0; i < 3; ++i) wait_for_log(i, "\n");
  const int server = std::stoi(log_[0]);
  ::kill(server, SIGKILL);
  expect<wire::AttemptEnded>();
  for (const auto& exit : exits_) {
    EXPECT_EQ(exit.signal, SIGKILL);
    EXPECT_FALSE(exit.stopped_by_us);
  }
  EXPECT_NE(run_python("print(os.getppid())"), std::to_string(server) + "\n");
}

TEST_F(ForkServers, StopsHitAttemptsAtAnyMoment) {
  configure_python();
  for (int round = 0; round < 30; ++round) {
    start_python(round, 6, "import time\nprint('up')\ntime.sleep(1000)");
    if (round % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
    if (round % 3 == 2) wait_for_log(3, "up");
    send(wire::StopAttempt{round, false, 0});
    EXPECT_EQ(expect<wire::AttemptEnded>().attempt, round);
    for (const auto& exit : exits_) EXPECT_TRUE(exit.stopped_by_us);
  }
}

TEST_F(ForkServers, StopWhileItStillImports) {
  auto configure = python();
  configure.program = {"sleep", "1000"};
  send(configure);
  start_python(3, 2, "");
  send(wire::StopAttempt{3, false, 0});
  EXPECT_EQ(expect<wire::AttemptEnded>().attempt, 3);
  configure_python();
}

TEST_F(ForkServers, ChildrenOfWorkersGoWithThem) {
  configure_python();
  start_python(1, 2,
               "import subprocess\nprint('child', subprocess.Popen(['sleep', '1000'], "
               "start_new_session=True).pid)\nos._exit(rank)");
  expect<wire::AttemptEnded>();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(sys::process_status(child_pid(i)), std::nullopt);
}

TEST_F(ForkServers, EverythingEndsWithTheDriver) {
  configure_python();
  start_python(1, 2,
               "import subprocess, time\nprint('child', subprocess.Popen(['sleep', '1000']).pid, "
               "os.getppid())\ntime.sleep(1000)");
  std::vector<int> family{child_pid(0), child_pid(1), pids_[0], pids_[1],
                          std::stoi(log_[0].substr(log_[0].rfind(' ')))};
  control_.reset();
  expect_end(agent_.pidfd.get(), 1s, "the agent");
  for (const int pid : family) EXPECT_EQ(sys::process_status(pid), std::nullopt);
}

TEST_F(ForkServers, EverythingEndsWithAKilledAgent) {
  configure_python();
  start_python(1, 2,
               "import subprocess, time\nprint('child', subprocess.Popen(['sleep', '1000']).pid, "
               "os.getppid())\ntime.sleep(1000)");
  std::vector<int> family{child_pid(0), child_pid(1), pids_[0], pids_[1],
                          std::stoi(log_[0].substr(log_[0].rfind(' ')))};
  sys::send_signal(agent_.pidfd.get(), SIGKILL);
  for (const int pid : family) expect_gone(pid, 1s);
}

TEST_F(ForkServers, PythonStacksAreCollected) {
  configure_python();
  start_python(
      1, 1,
      "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR2, file=stacks_fd, all_threads=True)\n"
      "def deep():\n  print('up')\n  time.sleep(1000)\ndeep()");
  wait_for_log(0, "up");
  send(wire::DumpStacks{1, 5});
  EXPECT_THAT(expect<wire::WorkerStacks>().text,
              AllOf(HasSubstr("state S"), HasSubstr("File \"payload\""), HasSubstr("in deep\n")));
}

TEST_F(ForkServers, ForkingIsQuick) {
  configure_python();
  auto best = Seconds(1000);
  for (int round = 0; round < 5; ++round) {
    const Instant begin = now();
    start_python(round, 4, "print('up')");
    for (std::size_t i = 0; i < 4; ++i) wait_for_log(i, "up");
    best = std::min(best, Seconds(now() - begin));
    expect<wire::AttemptEnded>();
  }
  RecordProperty("milliseconds", std::to_string(best.count() * 1000));
  EXPECT_LT(best.count(), 0.1);
}

}  // namespace
}  // namespace lockstep::agent
