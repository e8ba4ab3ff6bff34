// The driver's side of trials that have a process each, the server that forks them, and their own side.
//
//     driver ── requests ──► server: two sockets per trial
//     driver ◄── status ──── server: "started" with the pidfd, or "refused WHY"; then "exit CODE" or "signal NUMBER"
//     driver ◄── stream ───► trial: the job; reports, and answers if `waits`; interruption; the outcome

#include "tune/process_trials.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/failure.h"
#include "store/run_directory.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/sockets.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::tune {
namespace {

constexpr auto kUntilKilled = 5s;  ///< after an interruption: time for the function to see it

void tell(int socket, const std::string& text, std::span<const int> fds = {}) {
  sys::send_with_fds(socket, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
}

Value job_value(const Job& job, const FunctionTrial& trial, bool waits) {
  const Start& start = job.start;
  return {{"trial", start.trial},
          {"config", start.config},
          {"checkpoint", start.checkpoint},
          {"attempt", start.attempt},
          {"iterations", start.iterations},
          {"id", start.id},
          {"name", start.name},
          {"directory", job.directory.string()},
          {"time_before", job.time_before},
          {"experiment", trial.experiment},
          {"trainable", trial.trainable},
          {"metric", trial.metric},
          {"waits", waits}};
}

// ---------------------------------------------------------------- in the trial's process

/// To a loop in the driver.
class FarLink final : public TrialLink {
 public:
  FarLink(wire::Channel& channel, bool waits) : channel_(channel), waits_(waits) {}

  bool report(const Value& result, const std::string& checkpoint, bool last) override {
    channel_.send(wire::encode_value({{"report", result}, {"checkpoint", checkpoint}, {"last", last}}));
    ending_ = ending_ || last;
    {
      const std::lock_guard lock(mutex_);
      answered_ = !waits_;
      while (!answered_ && read(std::nullopt)) continue;
    }
    look();
    return ending_ || interrupted_;
  }
  bool interrupted() override {
    look();
    return interrupted_;
  }
  bool ending() override {
    look();
    return ending_;
  }

 private:
  void look() {
    const std::lock_guard lock(mutex_);
    while (read(now())) continue;
  }
  /// Takes one message. Returns false if there is none until `deadline`.
  bool read(std::optional<Instant> deadline) {
    const auto frame = channel_.receive(deadline);
    if (!frame) {
      if (channel_.closed()) ::_exit(1);  // the driver is gone
      return false;
    }
    const Value message = wire::decode_value(*frame);
    if (message.at("interrupted") == true) interrupted_ = true;
    if (const auto ends = message.find("ends"); ends != message.end()) {
      if (*ends == true) ending_ = true;
      answered_ = true;
    }
    return true;
  }

  wire::Channel& channel_;
  const bool waits_;
  std::mutex mutex_;  ///< other threads of the function may ask
  std::atomic<bool> answered_ = true, ending_ = false, interrupted_ = false;
};

[[noreturn]] void run_forked(sys::Descriptor stream, const std::function<Value(Session&)>& function) {
  const pid_t own = ::getpid();
  wire::Channel channel(std::move(stream));
  const auto frame = channel.receive();
  if (!frame) ::_exit(0);
  const Value given = wire::decode_value(*frame);
  Job job;
  job.start = {.trial = given.at("trial"),
               .config = given.at("config"),
               .checkpoint = given.at("checkpoint"),
               .attempt = given.at("attempt"),
               .iterations = given.at("iterations"),
               .id = given.at("id"),
               .name = given.at("name")};
  job.directory = given.at("directory").get<std::string>();
  job.begun = now();
  job.time_before = given.at("time_before");
  const FunctionTrial trial{given.at("experiment"), given.at("trainable"), given.at("metric")};
  FarLink link(channel, given.at("waits"));
  TrialLoop::Outcome outcome;
  try {
    outcome = run_function(function, link, job, trial);
  } catch (const std::exception& error) {  // its directory cannot be written
    outcome.error = error.what();
  }
  std::cout.flush();
  std::fflush(nullptr);
  if (::getpid() != own) ::_exit(0);  // the function forked, and both came back
  channel.send(wire::encode_value({{"error", outcome.error},
                                   {"interrupted", outcome.interrupted},
                                   {"last_report", outcome.last_report ? *outcome.last_report : Value()}}));
  ::_exit(0);
}

// ---------------------------------------------------------------- in the server

class Server {
 public:
  Server(sys::Descriptor requests, sys::Descriptor driver, const std::function<Value(Session&)>& function)
      : requests_(std::move(requests)), driver_(std::move(driver)), function_(function) {}

  [[noreturn]] void serve() {
    for (;;) {
      std::vector<pollfd> fds{{requests_.get(), POLLIN, 0}, {driver_.get(), POLLIN, 0}};
      for (const auto& each : children_) fds.push_back({each.pidfd.get(), POLLIN, 0});
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      for (std::size_t i = fds.size(); i-- > 2;)
        if (fds[i].revents != 0) bury(i - 2);
      if (fds[1].revents != 0) end();
      if (fds[0].revents != 0) take();
    }
  }

 private:
  struct Forked {
    pid_t pid;
    sys::Descriptor pidfd, status;
  };

  void take() {
    auto [bytes, fds] = sys::receive_with_fds(requests_.get());
    if (bytes.empty() || fds.size() != 2) end();
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      requests_.reset();
      driver_.reset();
      children_.clear();
      fds[1].reset();
      run_forked(std::move(fds[0]), function_);
    }
    sys::Descriptor pidfd = pid > 0 ? sys::open_pidfd(pid) : sys::Descriptor();
    if (!pidfd) {
      const std::string why = std::strerror(errno);
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
      return say(fds[1].get(), "refused " + why);
    }
    ::setpgid(pid, pid);
    const std::array passed{pidfd.get()};
    say(fds[1].get(), "started", passed);
    children_.push_back({pid, std::move(pidfd), std::move(fds[1])});
  }

  void bury(std::size_t index) {
    const Forked& child = children_[index];
    ::kill(-child.pid, SIGKILL);  // what it left behind
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    say(child.status.get(), WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "exit " + std::to_string(WEXITSTATUS(status)));
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  /// The driver's thread may be gone.
  static void say(int socket, const std::string& text, std::span<const int> fds = {}) {
    try {
      tell(socket, text, fds);
    } catch (const EngineError&) {
    }
  }

  /// Not left to the system: it would kill only this process and the trials, not what the trials have started.
  [[noreturn]] void end() {
    for (const auto& each : children_) ::kill(-each.pid, SIGKILL);
    ::_exit(0);
  }

  sys::Descriptor requests_;
  sys::Descriptor driver_;  ///< readable when it is gone; processes that it forked may hold the socket of requests open
  const std::function<Value(Session&)>& function_;
  std::vector<Forked> children_;
};

// ---------------------------------------------------------------- in the driver

/// How a process that did not tell its outcome ended.
Failure failure_of_process(const std::string& status) {
  Failure failure;
  failure.kind = FailureKind::exit;
  const auto space = status.find(' ');
  const std::string word = status.substr(0, space), rest = status.substr(space + 1);
  if (word == "signal") {
    failure.kind = FailureKind::signal;
    const char* name = sigabbrev_np(std::stoi(rest));
    failure.message = "the process of the trial was ended by " + (name ? "SIG" + std::string(name) : "signal " + rest);
  } else if (word == "exit") {
    failure.message = "the process of the trial ended with exit code " + rest + " before its function did";
  } else if (word == "refused") {
    failure.message = "the system refuses a process for the trial: " + rest;
  } else {
    failure.message = "the process that starts trials has ended";
  }
  return failure;
}

/// One trial, from the driver's thread that waits for it.
class ForkedTrial {
 public:
  ForkedTrial(TrialLoop& loop, Job& job, const FunctionTrial& trial, bool waits, TrialForks::Child child)
      : loop_(loop),
        job_(job),
        trial_(trial),
        waits_(waits),
        channel_(std::move(child.stream)),
        status_(std::move(child.status)),
        stopped_(sys::event_descriptor()) {}

  TrialLoop::Outcome run() {
    auto [text, fds] = sys::receive_with_fds(status_.get());
    const std::string answer(text.begin(), text.end());
    if (answer != "started" || fds.size() != 1) return failed(answer);
    pidfd_ = std::move(fds[0]);
    send(job_value(job_, trial_, waits_));
    loop_.set_kill(
        job_, [this] { end(); }, [this] { tell_ending(); });
    follow();
    loop_.set_kill(job_, {});
    if (outcome_) return *outcome_;
    auto [ending, none] = sys::receive_with_fds(status_.get());
    return failed(std::string(ending.begin(), ending.end()));
  }

 private:
  // Called by the loop:
  void tell_ending() { send({{"ends", true}, {"interrupted", loop_.interrupted()}}); }
  void end() {
    if (job_.killed)
      sys::send_signal(pidfd_.get(), SIGKILL);
    else
      send({{"interrupted", true}});
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stopped_.get(), &one, sizeof one);
  }

  /// Until the process has ended.
  void follow() {
    std::array<pollfd, 3> fds{{{channel_.fd(), POLLIN, 0}, {status_.get(), POLLIN, 0}, {stopped_.get(), POLLIN, 0}}};
    std::optional<Instant> deadline;
    for (;;) {
      const auto left = deadline ? std::chrono::ceil<std::chrono::milliseconds>(*deadline - now()).count() : -1;
      ::poll(fds.data(), fds.size(), static_cast<int>(std::max<long>(left, -1)));
      const bool is_over = fds[1].revents != 0;
      while (const auto frame = channel_.receive(now())) take(wire::decode_value(*frame));
      if (is_over) return;
      if (channel_.closed()) fds[0].fd = -1;
      if (fds[2].revents != 0) {
        fds[2].fd = -1;
        deadline = now() + kUntilKilled;
      }
      if (deadline && now() >= *deadline) {
        sys::send_signal(pidfd_.get(), SIGKILL);
        deadline.reset();
      }
    }
  }

  void take(const Value& message) {
    const auto report = message.find("report");
    if (report == message.end()) {
      outcome_.emplace().error = message.at("error");
      outcome_->interrupted = message.at("interrupted");
      if (const Value& last = message.at("last_report"); !last.is_null()) outcome_->last_report = last;
      return;
    }
    ++reports_;
    last_ = *report;
    const bool is_last = loop_.report(job_, *report, message.at("checkpoint"), message.at("last"));
    // An interrupted trial goes on later; one that was told to end does not.
    if (waits_ || is_last) send({{"ends", job_.ending.load()}, {"interrupted", loop_.interrupted()}});
  }

  void send(const Value& message) {
    const std::lock_guard lock(mutex_);
    try {
      channel_.send(wire::encode_value(message));
    } catch (const EngineError&) {  // its end is about to be seen
    }
  }

  TrialLoop::Outcome failed(const std::string& status) {
    TrialLoop::Outcome outcome;
    outcome.interrupted = loop_.interrupted() && !job_.ending;
    const bool has_failed = !outcome.interrupted && !job_.killed && !job_.stopped;
    const Failure failure = failure_of_process(status);
    if (has_failed) outcome.error = failure.message;
    const store::RunDirectory directory(job_.directory);
    if (sys::files().info(job_.directory).kind != sys::FileKind::none)
      close_trial_directory(job_, trial_,
                            {.state = outcome.interrupted ? "interrupted"
                                      : has_failed        ? "failed"
                                                          : "finished",
                             .failure = has_failed ? &failure : nullptr,
                             .reports = reports_,
                             .last = last_,
                             .next_seq = directory.next_seq()});
    return outcome;
  }

  TrialLoop& loop_;
  Job& job_;
  const FunctionTrial& trial_;
  const bool waits_;
  std::mutex mutex_;  ///< the loop may send, too
  wire::Channel channel_;
  sys::Descriptor status_, stopped_, pidfd_;
  std::int64_t reports_ = job_.start.iterations;
  Value last_;
  std::optional<TrialLoop::Outcome> outcome_;
};

}  // namespace

TrialForks::TrialForks(const std::function<Value(Session&)>& function) {
  auto [ours, theirs] = sys::packet_pair();
  std::cout.flush();
  std::fflush(nullptr);  // else each process writes what is buffered
  const pid_t parent = ::getpid();
  server_ = ::fork();
  if (server_ < 0) throw EngineError(std::string("[tune] cannot fork: ") + std::strerror(errno));
  if (server_ == 0) {
    ::setsid();  // Ctrl-C is for the driver
    ours.reset();
    std::signal(SIGCHLD, SIG_DFL);
    sys::set_process_name("lockstep-trials");
    try {
      sys::Descriptor driver = sys::open_pidfd(parent);
      if (!driver || ::getppid() != parent) ::_exit(1);
      Server(std::move(theirs), std::move(driver), function).serve();
    } catch (const std::exception& error) {  // here, and in a trial, nothing may return to the caller
      std::cerr << "lockstep: a process for trials ends: " << error.what() << std::endl;
    }
    ::_exit(1);
  }
  requests_ = std::move(ours);
}

TrialForks::~TrialForks() {
  try {
    tell(requests_.get(), "end");  // closing it does not suffice: processes that this one forked may hold it open
  } catch (const EngineError&) {   // the server is gone
  }
  ::waitpid(server_, nullptr, 0);
}

TrialForks::Child TrialForks::start() {
  auto [stream, their_stream] = sys::socket_pair();
  auto [status, their_status] = sys::packet_pair();
  const std::array passed{their_stream.get(), their_status.get()};
  const std::lock_guard lock(mutex_);
  tell(requests_.get(), "fork", passed);
  return {std::move(stream), std::move(status)};
}

TrialLoop::RunTrial TrialForks::trials(TrialLoop& loop, FunctionTrial trial, bool waits) {
  return [this, &loop, trial = std::move(trial), waits](Job& job) {
    return ForkedTrial(loop, job, trial, waits, start()).run();
  };
}

}  // namespace lockstep::tune
