#include "worker/zygote.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <lockstep/error.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/agent_mark.h"
#include "sys/environment.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep::worker {
namespace {

constexpr int kFirstFd = 3;
constexpr auto kSweepWithin = 5s;
#ifdef __SANITIZE_THREAD__
constexpr int kOwnThreads = 2;  // the sanitizer has one too
#else
constexpr int kOwnThreads = 1;
#endif

/// What a child needs to execute the program. Made before the fork, because little is allowed after it.
struct Program {
  std::vector<std::string> words, variables;
  std::vector<char*> argv, envp;

  explicit Program(std::vector<std::string> arguments) : words(std::move(arguments)) {
    for (const char* name : {"LOCKSTEP_WORKER_FD", "LOCKSTEP_PAYLOAD_FD", "LOCKSTEP_STACKS_FD"})
      variables.push_back(std::string(name) + "=" + std::to_string(kFirstFd + static_cast<int>(variables.size())));
    for (const auto& [name, value] : sys::environment()) variables.push_back(name + "=" + value);
    for (auto& word : words) argv.push_back(word.data());
    for (auto& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
  }
};

bool has_threads() {
  std::error_code ignored;
  const std::filesystem::directory_iterator tasks("/proc/self/task", ignored);
  return std::distance(begin(tasks), end(tasks)) > kOwnThreads;
}

class Zygote {
 public:
  Zygote(int agent, const std::vector<std::string>& arguments) : agent_(agent), program_(arguments) {}

  Birth serve() {
    sys::close_on_exec(agent_.get());
    std::signal(SIGINT, SIG_IGN);
    sys::set_process_name("lockstep-forks");
    executes_ = has_threads();
    if (executes_)
      std::fputs(
          "lockstep: this program starts threads before lockstep::init(), so workers are executed instead of forked, "
          "which "
          "takes longer; start threads later\n",
          stderr);
    // From here on, the end of the agent is seen at the socket, and then the workers' children are killed too.
    ::prctl(PR_SET_PDEATHSIG, 0);
    send("ready");
    for (;;) {
      std::vector<pollfd> fds{{agent_.get(), POLLIN, 0}};
      for (const auto& worker : workers_) fds.push_back({worker.pidfd.get(), POLLIN, 0});
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      for (std::size_t i = fds.size(); i-- > 1;)
        if (fds[i].revents != 0) bury(i - 1);
      if (fds[0].revents == 0) continue;
      if (auto birth = answer()) return *birth;
    }
  }

 private:
  void send(const std::string& text, std::span<const int> fds = {}) {
    try {
      sys::send_with_fds(agent_.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
    } catch (const EngineError&) {
      end();
    }
  }

  /// Returns a value only in a new worker.
  std::optional<Birth> answer() {
    auto [bytes, fds] = sys::receive_with_fds(agent_.get());
    if (bytes.empty()) end();
    const std::string packet(bytes.begin(), bytes.end());
    const std::string ticket = packet.substr(packet.find(' ') + 1);
    if (fds.size() != 4) {
      send("refused " + ticket + " it came with " + std::to_string(fds.size()) + " descriptors");
      return std::nullopt;
    }
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) return become_worker(parent, fds);
    sys::Descriptor pidfd = pid > 0 ? sys::open_pidfd(pid) : sys::Descriptor();
    if (!pidfd) {
      const std::string why = std::strerror(errno);
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
      send("refused " + ticket + " " + why);
      return std::nullopt;
    }
    const std::array passed{pidfd.get()};
    workers_.push_back({pid, std::move(pidfd)});
    send("started " + ticket + " " + std::to_string(pid), passed);
    return std::nullopt;
  }

  Birth become_worker(pid_t parent, std::vector<sys::Descriptor>& fds) {
    const int log = fds[2].get();
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    // Orphaned descendants become children of this worker while it lives. The agent would kill them.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::signal(SIGINT, SIG_DFL);
    if (executes_) execute(fds);
    agent_.reset();
    fds[2].reset();
    workers_.clear();
    return {fds[0].release(), fds[1].release(), fds[3].release()};
  }

  [[noreturn]] void execute(const std::vector<sys::Descriptor>& fds) {
    // Copy to higher numbers first, so that none is overwritten before it is copied.
    std::array<int, 3> copies{};
    for (std::size_t i = 0; const int fd : {fds[0].get(), fds[1].get(), fds[3].get()})
      copies[i++] = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFd + 3);
    for (int i = 0; i < 3; ++i) ::dup2(copies[static_cast<std::size_t>(i)], kFirstFd + i);
    ::execve("/proc/self/exe", program_.argv.data(), program_.envp.data());
    ::_exit(127);
  }

  void bury(std::size_t index) {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(workers_[index].pid), &info, WEXITED);
    const bool exited = info.si_code == CLD_EXITED;
    send("exited " + std::to_string(workers_[index].pid) + " " + std::to_string(exited ? info.si_status : 0) + " " +
         std::to_string(exited ? 0 : info.si_status));
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  [[noreturn]] void end() {
    for (const auto& worker : workers_)
      if (::kill(-worker.pid, SIGKILL) != 0) ::kill(worker.pid, SIGKILL);
    kill_leftovers();
    ::_exit(0);
  }

  struct Child {
    pid_t pid;
    sys::Descriptor pidfd;
  };
  sys::Descriptor agent_;
  std::vector<Child> workers_;
  Program program_;
  bool executes_ = false;
};

}  // namespace

Birth serve_forks(int agent, const std::vector<std::string>& arguments) { return Zygote(agent, arguments).serve(); }

void kill_leftovers() {
  const char* id = std::getenv(sys::kAgentId);
  if (id == nullptr || *id == '\0') return;
  // The agent and its fork servers share a session; every worker has its own.
  sys::kill_marked(std::string(sys::kAgentId) + "=" + id, now() + kSweepWithin, true);
}

}  // namespace lockstep::worker
