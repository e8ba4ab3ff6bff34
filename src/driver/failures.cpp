#include "driver/failures.h"

#include <csignal>
#include <cstring>
#include <map>

#include "base/text.h"

namespace lockstep::driver {
namespace {

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT ||
         signal == SIGTRAP;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

}  // namespace

Failure failure_of_exit(const WorkerExited& exited) {
  Failure failure;
  failure.rank = exited.rank;
  failure.attempt = exited.attempt;
  if (exited.out_of_memory) {
    failure.kind = FailureKind::out_of_memory;
    failure.message =
        "the kernel killed the worker for want of memory; use fewer workers, smaller batches, or a machine with more "
        "memory";
  } else if (exited.signal != 0) {
    failure.kind = FailureKind::signal;
    failure.message = is_crash(exited.signal) ? "the worker crashed natively with " + signal_name(exited.signal)
                                              : "the worker was killed by " + signal_name(exited.signal);
  } else {
    failure.kind = FailureKind::exit;
    failure.message =
        "the worker ended with exit code " + std::to_string(exited.code) + " before its function returned";
  }
  return failure;
}

Failure failure_of_hang(const RunState& state, int rank, Instant now) {
  const RankState& silent = state.ranks[static_cast<std::size_t>(rank)];
  Failure failure;
  failure.kind = state.hang_kind;
  failure.rank = rank;
  failure.attempt = state.attempt;
  failure.traceback = silent.stacks;
  const bool dead_heart = state.hang_kind == FailureKind::heartbeat;
  const Seconds quiet = now - (dead_heart ? silent.last_heartbeat : silent.last_progress);
  failure.message = dead_heart
                        ? "no heartbeat for " + human_duration(quiet.count()) + ": the process is stopped or frozen"
                        : "no progress for " + human_duration(quiet.count()) + " (hang_timeout)";
  return failure;
}

Failure failure_of_stuck(const RunState& state, int rank) {
  Failure failure;
  failure.kind = FailureKind::hang;
  failure.rank = rank;
  failure.attempt = state.attempt;
  failure.message = "it did not come together with the other ranks after a failure, and was killed";
  return failure;
}

std::string describe(const std::vector<Failure>& failures) {
  if (failures.empty()) return "unknown failure";
  const Failure& first = failures.front();
  std::string text = (first.rank >= 0 ? "rank " + std::to_string(first.rank) : std::string("driver")) + ": ";
  text += first.type.empty() ? first.message : first.type + ": " + first.message;
  std::map<std::string, std::vector<int>> others;
  for (std::size_t i = 1; i < failures.size(); ++i) {
    const Failure& other = failures[i];
    others[other.type.empty() ? other.message : other.type + ": " + other.message].push_back(other.rank);
  }
  for (const auto& [message, ranks] : others)
    text += "\n" + std::string(ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks) + ": " + message;
  return text;
}

}  // namespace lockstep::driver
