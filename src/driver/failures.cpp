#include "driver/failures.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "base/text.h"
#include "driver/rules.h"
#include "driver/stacks.h"

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

/// The ranks that are reported for a hang.
struct Suspects {
  std::vector<int> causes;
  std::vector<int> waiting;  ///< for the causes
  std::vector<StackSummary> stacks;

  const StackSummary& stack(int rank) const { return stacks[static_cast<std::size_t>(rank)]; }
};

/// The fewer ranks are at the same place, the earlier they come; among equals, those in the user's own code first.
void sort_causes(Suspects& suspects) {
  const auto as_many = [&](int rank) {
    const std::string& place = suspects.stack(rank).place;
    return std::ranges::count(suspects.stacks, place, &StackSummary::place);
  };
  std::ranges::stable_sort(suspects.causes, {},
                           [&](int rank) { return std::pair(as_many(rank), suspects.stack(rank).in_library); });
}

Suspects suspects_of(const RunState& state) {
  Suspects suspects{state.hung, {}, {}};
  for (const RankState& rank : state.ranks) suspects.stacks.push_back(summarize_stacks(rank.stacks));
  if (state.hang_kind != FailureKind::hang) return suspects;
  for (const int rank : state.meeting.present) suspects.stacks[static_cast<std::size_t>(rank)].waits = true;
  std::vector<int> busy;
  for (int rank = 0; rank < static_cast<int>(state.ranks.size()); ++rank) {
    const bool answered = !suspects.stack(rank).frames.empty() && !state.ranks[static_cast<std::size_t>(rank)].finished;
    if (answered || suspects.stack(rank).waits) (suspects.stack(rank).waits ? suspects.waiting : busy).push_back(rank);
  }
  std::erase_if(suspects.causes, [&](int rank) { return suspects.stack(rank).waits; });
  // All late ranks wait: for one that has made progress since, or for each other.
  if (suspects.causes.empty()) suspects.causes = std::move(busy);
  if (suspects.causes.empty()) std::swap(suspects.causes, suspects.waiting);
  sort_causes(suspects);
  return suspects;
}

std::string place_text(const StackSummary& stack) {
  std::string text = stack.waits ? "waiting for other ranks" : "";
  if (!stack.waits_in.empty()) text += " in " + stack.waits_in;
  if (!stack.place.empty()) text += (text.empty() ? "at " : " at ") + stack.place;
  return text;
}

std::string silence_text(const RunState& state, int rank, const Suspects& suspects, Instant now) {
  const RankState& silent = state.ranks[static_cast<std::size_t>(rank)];
  if (state.hang_kind == FailureKind::heartbeat)
    return "no heartbeat for " + human_duration(Seconds(now - silent.last_heartbeat).count()) +
           ": the process is stopped or frozen";
  const std::string where = place_text(suspects.stack(rank));
  if (std::ranges::count(suspects.waiting, rank) > 0) return where;
  if (std::ranges::count(state.hung, rank) == 0)
    return suspects.stack(rank).waits ? where : "the other ranks wait for it " + where;
  const std::string link = where.empty() ? "" : suspects.stack(rank).waits ? ", " : " ";
  return "no progress for " + human_duration(state.policy.hang_timeout.value_or(Seconds{0}).count()) +
         " (hang_timeout)" + link + where;
}

Failure failure_of_silence(const RunState& state, int rank, const Suspects& suspects, Instant now) {
  Failure failure;
  failure.kind = state.hang_kind;
  failure.rank = rank;
  failure.attempt = state.attempt;
  failure.message = silence_text(state, rank, suspects, now);
  const std::string& frames = suspects.stack(rank).frames;
  failure.traceback = frames.empty() ? state.ranks[static_cast<std::size_t>(rank)].stacks
                                     : "Stack (most recent call first):\n" + frames;
  return failure;
}

}  // namespace

bool is_death(FailureKind kind) {
  using enum FailureKind;
  return kind != exception && kind != callback && kind != storage && kind != internal;
}

Failure failure_of_exit(const WorkerExited& exited) {
  Failure failure;
  failure.rank = exited.rank;
  failure.attempt = exited.attempt;
  if (exited.out_of_memory) {
    failure.kind = FailureKind::out_of_memory;
    failure.message =
        "the kernel killed the worker because memory ran out; use fewer workers, smaller batches, or a machine with "
        "more "
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

std::vector<Failure> failures_of_silence(const RunState& state, Instant now) {
  std::vector<Failure> failures;
  const Suspects suspects = suspects_of(state);
  for (const int rank : suspects.causes) failures.push_back(failure_of_silence(state, rank, suspects, now));
  for (const int rank : suspects.waiting) failures.push_back(failure_of_silence(state, rank, suspects, now));
  return failures;
}

Failure failure_of_stuck(const RunState& state, int rank) {
  Failure failure;
  failure.kind = FailureKind::hang;
  failure.rank = rank;
  failure.attempt = state.attempt;
  failure.message = "it did not rejoin the other ranks after a failure, and was killed";
  return failure;
}

Failure not_understood(const std::exception& error) {
  Failure failure;
  failure.message = std::string("the worker sent an invalid message: ") + error.what();
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
  for (const auto& [message, ranks] : others) text += "\n" + ranks_text(ranks) + ": " + message;
  return text;
}

}  // namespace lockstep::driver
