#include "collective/rounds.h"

#include <sched.h>

#include <algorithm>

#include "collective/guardian.h"

namespace lockstep::collective {
namespace {

/// Spin at most this long: longer than a peer needs for its part of one round, but short compared with a training step.
constexpr auto kRoundSpin = std::chrono::microseconds(100);
constexpr int kPausesPerLook = 64;

/// Whether a wrapping counter has reached `target`.
bool reached(std::uint32_t counter, std::uint32_t target) { return static_cast<std::int32_t>(counter - target) >= 0; }

}  // namespace

void Rounds::arrive() {
  round_ += 1;
  target_ += static_cast<std::uint32_t>(region_.world());
  RankWords& words = region_.rank(rank_);
  if (spin_) words.core.store(::sched_getcpu(), std::memory_order_relaxed);
  words.round.store(round_, std::memory_order_release);
  if (region_.group().arrivals.fetch_add(1) + 1 == target_ && region_.world() > 1) region_.strike_gong();
}

std::uint32_t Rounds::wait(const Occasion& occasion) {
  if (!spin_until_complete()) sleep_until_complete(occasion);
  return round_;
}

bool Rounds::complete() const { return reached(region_.group().arrivals.load(), target_); }

bool Rounds::spin_until_complete() const {
  if (!spin_) return complete();
  Instant end{};
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (complete()) return true;
      sys::relax();
    }
    if (end == Instant{}) end = now() + kRoundSpin;
  } while (!in_the_way() && !region_.fault() && now() < end);
  return complete();
}

/// Whether a rank that is waited for was last seen on this core. Then two ranks share a core, and the other one cannot
/// run while this one spins.
bool Rounds::in_the_way() const {
  const int core = ::sched_getcpu();
  for (int rank = 0; rank < region_.world(); ++rank) {
    RankWords& words = region_.rank(rank);
    if (rank != rank_ && words.core.load(std::memory_order_relaxed) == core && !reached(words.round.load(), round_))
      return true;
  }
  return false;
}

void Rounds::sleep_until_complete(const Occasion& occasion) {
  GroupWords& group = region_.group();
  const Instant deadline = now() + occasion.timeout + occasion.grace;
  struct Sleeper {
    Word& count;
    explicit Sleeper(Word& word) : count(word) { count.fetch_add(1); }
    ~Sleeper() { count.fetch_sub(1); }
  } sleeper(group.gong_sleepers);
  for (bool woken = true;;) {
    const std::uint32_t gong = group.gong.load();
    if (!woken) report_deaths(region_, rank_);
    // A fault or departure may explain what is missing, so it is read first and reported last.
    const auto fault = region_.fault();
    const auto left = missing(true);
    if (complete()) return;
    if (fault) throw_fault(region_, rank_, *fault, occasion);
    if (!left.empty()) throw_left(region_, rank_, left, occasion);
    if (!woken && now() >= deadline) throw_silent(region_, rank_, missing(false), occasion);
    woken = futex_wait(group.gong, gong, std::min(deadline, now() + kDeathLook));
  }
}

std::vector<int> Rounds::missing(bool only_left) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < region_.world(); ++rank) {
    RankWords& words = region_.rank(rank);
    const bool left = words.presence.load() == Presence::left;
    if ((left || !only_left) && !reached(words.round.load(), round_)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace lockstep::collective
