#include "sys/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::sys {
namespace {

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw EngineError("[sys.process] " + what + ": " + std::strerror(error));
}

#ifdef __SANITIZE_THREAD__
constexpr bool kVforkReturnsEarly = true;  // that sanitizer makes it a fork
#else
constexpr bool kVforkReturnsEarly = false;
#endif

/// The step that failed in the child, as it is sent through the pipe.
struct ChildError {
  enum class Step : int { session, directory, descriptors, execute } step;
  int error;
};

/// Everything that the child needs. Made before vfork, because the child must not allocate.
struct Launch {
  const char* program;
  char* const* argv;
  char* const* env;
  const char* cwd;
  const std::pair<int, int>* fds;
  std::size_t fd_count;
  int first_free;
  int* moved;
  bool own_session;
  int parent_death_signal;
  pid_t parent;
  int error_pipe;
  sigset_t mask;
};

[[noreturn]] void give_up(const Launch& launch, ChildError::Step step) {
  const ChildError error{step, errno};
  (void)!::write(launch.error_pipe, &error, sizeof error);
  ::_exit(127);
}

/// The child until exec. Makes only async-signal-safe calls.
[[noreturn]] void run_child(const Launch& launch) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  if (launch.own_session && ::setsid() < 0) give_up(launch, ChildError::Step::session);
  if (launch.parent_death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, launch.parent_death_signal);
    if (::getppid() != launch.parent) ::_exit(127);
  }
  if (launch.cwd != nullptr && ::chdir(launch.cwd) != 0) give_up(launch, ChildError::Step::directory);
  // Copy the descriptors above all target numbers first, then to the targets: sources and targets may overlap.
  int error_pipe = ::fcntl(launch.error_pipe, F_DUPFD_CLOEXEC, launch.first_free);
  if (error_pipe < 0) give_up(launch, ChildError::Step::descriptors);
  Launch moved = launch;
  moved.error_pipe = error_pipe;
  for (std::size_t i = 0; i < launch.fd_count; ++i)
    if ((launch.moved[i] = ::fcntl(launch.fds[i].first, F_DUPFD_CLOEXEC, launch.first_free)) < 0)
      give_up(moved, ChildError::Step::descriptors);
  for (std::size_t i = 0; i < launch.fd_count; ++i)
    if (::dup2(launch.moved[i], launch.fds[i].second) < 0) give_up(moved, ChildError::Step::descriptors);
  ::sigprocmask(SIG_SETMASK, &launch.mask, nullptr);
  ::execve(launch.program, launch.argv, launch.env);
  give_up(moved, ChildError::Step::execute);
}

/// A separate function, so that no variable lives across vfork, which returns twice.
[[gnu::noinline]] pid_t start_child(const Launch& launch) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(launch);
  return pid;
}

std::string find_program(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return name;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = (end == begin ? "." : path.substr(begin, end - begin)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  throw EngineError("[sys.process] there is no program " + in_quotes(name) + " in PATH");
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment(const SpawnOptions& options) {
  std::vector<std::string> result;
  if (options.env) {
    for (const auto& [key, value] : *options.env) result.push_back(key + "=" + value);
  } else {
    for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  }
  return result;
}

std::string search_path(const std::vector<std::string>& env) {
  for (const auto& entry : env)
    if (entry.starts_with("PATH=")) return entry.substr(5);
  return "/usr/local/bin:/usr/bin:/bin";
}

/// Throws the error that the child wrote, if any. It is in the pipe when vfork returns. Do not wait for the end of the
/// pipe: a child that another thread forked meanwhile may hold it open.
void check_child(int pipe, pid_t pid, const SpawnOptions& options) {
  ChildError error;
  ssize_t size;
  do size = ::read(pipe, &error, sizeof error);
  while (size < 0 && errno == EINTR);
  if (size != sizeof error) return;
  ::waitpid(pid, nullptr, 0);
  const std::string program = in_quotes(options.argv[0]);
  switch (error.step) {
    case ChildError::Step::session:
      fail("could not make a session for " + program, error.error);
    case ChildError::Step::directory:
      fail("could not start " + program + " in the directory " + in_quotes(options.cwd), error.error);
    case ChildError::Step::descriptors:
      fail("could not pass descriptors to " + program, error.error);
    case ChildError::Step::execute:
      fail("could not execute " + program, error.error);
  }
}

/// The contents of a small file in /proc; empty if it cannot be read.
std::string read_proc(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size; file && (size = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(size));
  return text;
}

/// Whether the process was started with this NAME=VALUE in its environment. False if we may not read it.
bool has_variable(int pid, const std::string& variable) {
  const std::string all = '\0' + read_proc("/proc/" + std::to_string(pid) + "/environ");
  return all.find('\0' + variable + '\0') != std::string::npos;
}

/// The entries of a directory that are numbers.
std::vector<int> numbered_entries(const std::string& path) {
  std::vector<int> result;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return result;
  while (const dirent* entry = ::readdir(directory)) {
    int number = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, number).ptr == end) result.push_back(number);
  }
  ::closedir(directory);
  return result;
}

/// For kernels without /proc/<pid>/task/<tid>/children.
std::vector<int> children_by_search(int pid) {
  std::vector<int> result;
  for (const int other : numbered_entries("/proc"))
    if (const auto status = process_status(other); status && status->parent == pid) result.push_back(other);
  return result;
}

}  // namespace

Process spawn(const SpawnOptions& options) {
  if (options.argv.empty()) throw InternalError("[sys.process] no program to start");
  auto arguments = options.argv;
  auto variables = environment(options);
  const std::string program = find_program(options.argv[0], search_path(variables));
  const auto argv = pointers(arguments);
  const auto env = pointers(variables);
  std::vector<int> moved(options.fds.size());
  auto [read_end, write_end] = pipe_pair();

  Launch launch{};
  launch.program = program.c_str();
  launch.argv = argv.data();
  launch.env = env.data();
  launch.cwd = options.cwd.empty() ? nullptr : options.cwd.c_str();
  launch.fds = options.fds.data();
  launch.fd_count = options.fds.size();
  launch.first_free = 3;
  for (const auto& [ours, theirs] : options.fds) launch.first_free = std::max(launch.first_free, theirs + 1);
  launch.moved = moved.data();
  launch.own_session = options.own_session;
  launch.parent_death_signal = options.parent_death_signal;
  launch.parent = ::getpid();
  launch.error_pipe = write_end.get();
  ::sigemptyset(&launch.mask);

  // The child shares this memory until exec, so none of our signal handlers may run in it.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = start_child(launch);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) fail("could not fork for " + in_quotes(options.argv[0]), error);

  write_end.reset();
  set_nonblocking(read_end.get(), !kVforkReturnsEarly);
  check_child(read_end.get(), pid, options);
  Process process{pid, open_pidfd(pid)};
  if (!process.pidfd) throw EngineError("[sys.process] " + in_quotes(options.argv[0]) + " ended at once");
  return process;
}

Descriptor open_pidfd(int pid) {
  Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd && errno != ESRCH) fail("pidfd_open");
  return pidfd;
}

bool send_signal(int pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0) return true;
  if (errno != ESRCH) fail("pidfd_send_signal");
  return false;
}

std::optional<ExitStatus> take_exit(int pidfd, bool block) {
  siginfo_t info{};
  int result;
  do result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | (block ? 0 : WNOHANG));
  while (result != 0 && errno == EINTR);
  // EAGAIN: the process still runs, and its pidfd is non-blocking.
  if (result != 0 && errno != ECHILD && errno != EAGAIN) fail("waitid");
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  if (info.si_code == CLD_EXITED) return ExitStatus{info.si_status, 0};
  return ExitStatus{0, info.si_status};
}

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
}

void set_process_name(const char* name) { ::prctl(PR_SET_NAME, name); }

std::optional<ProcessStatus> process_status(int pid) {
  const std::string base = "/proc/" + std::to_string(pid);
  const std::string text = read_proc(base + "/stat");
  // The name, in parentheses, may contain anything. Count the fields after it (proc(5): the state is the third).
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  ProcessStatus status;
  status.state = text[name_end + 2];
  const char* at = text.c_str() + name_end + 3;
  for (int field = 4; field <= 22; ++field) {
    char* end = nullptr;
    const unsigned long long number = std::strtoull(at, &end, 10);
    if (field == 4) status.parent = static_cast<int>(number);
    if (field == 22) status.start_ticks = number;
    at = end;
  }
  if (const std::string channel = read_proc(base + "/wchan"); channel != "0") status.wait_channel = channel;
  return status;
}

bool catches_signal(int pid, int signal) {
  constexpr std::string_view kKey = "SigCgt:\t";
  const std::string text = read_proc("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = text.find(kKey);
  if (at == std::string::npos) return false;
  return (std::strtoull(text.c_str() + at + kKey.size(), nullptr, 16) >> (signal - 1) & 1) != 0;
}

std::vector<int> children(int pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  static const bool listed_by_kernel = ::access("/proc/thread-self/children", F_OK) == 0;
  if (!listed_by_kernel) return children_by_search(pid);
  std::vector<int> result;
  for (const int task : numbered_entries(tasks)) {
    const std::string text = read_proc(tasks + "/" + std::to_string(task) + "/children");
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
      int child = 0;
      const auto parsed = std::from_chars(at, end, child);
      if (parsed.ptr == at) continue;
      result.push_back(child);
      at = parsed.ptr;
    }
  }
  return result;
}

bool kill_marked(const std::string& variable, Instant deadline, bool spare_session) {
  // A process in the middle of exec has no environment for a moment: the end is two passes that find none.
  constexpr int kQuietPasses = 2;
  for (int quiet = 0; quiet < kQuietPasses;) {
    if (quiet > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::vector<Descriptor> killed;
    for (const int pid : numbered_entries("/proc")) {
      if (pid == ::getpid() || !has_variable(pid, variable)) continue;
      if (spare_session && ::getsid(pid) == ::getsid(0)) continue;
      // The pid may belong to another process by now; a pidfd never does.
      Descriptor process = open_pidfd(pid);
      if (!process || !has_variable(pid, variable)) continue;
      for (const int child : descendants(pid)) ::kill(child, SIGKILL);
      send_signal(process.get(), SIGKILL);
      killed.push_back(std::move(process));
    }
    quiet = killed.empty() ? quiet + 1 : 0;
    for (const auto& process : killed) {
      pollfd item{process.get(), POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
      if (left <= 0 || ::poll(&item, 1, static_cast<int>(left)) == 0) return false;
    }
  }
  return true;
}

std::vector<int> descendants(int pid, const std::vector<int>& except) {
  std::vector<int> result;
  std::vector<int> open{pid};
  while (!open.empty()) {
    const int parent = open.back();
    open.pop_back();
    for (const int child : children(parent)) {
      if (std::ranges::find(except, child) != except.end() || std::ranges::find(result, child) != result.end())
        continue;
      result.push_back(child);
      open.push_back(child);
    }
  }
  return result;
}

}  // namespace lockstep::sys
