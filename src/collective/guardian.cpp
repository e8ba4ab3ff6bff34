#include "collective/guardian.h"

#include <linux/futex.h>
#include <lockstep/error.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::collective {
namespace {

constexpr std::uint32_t kStarting = 0, kReady = 1, kWatching = 2, kStopping = 3, kStopped = 4;
constexpr Instant kNever = Instant::max();

/// Makes this thread the owner of a rank's `life`.
class RobustWord {
 public:
  RobustWord(RankWords& words, std::uint32_t thread) : words_(words) {
    words.owned.list.next = &words.owned_entry;
    words.owned_entry.next = &words.owned.list;
    words.owned.futex_offset = reinterpret_cast<char*>(&words.life) - reinterpret_cast<char*>(&words.owned_entry);
    words.owned.list_op_pending = nullptr;
    words.life.store(thread);
    registered_ = ::syscall(SYS_set_robust_list, &words.owned, sizeof words.owned) == 0;
  }
  ~RobustWord() {
    words_.life.store(0);
    futex_wake(words_.life);
    // glibc's own list need not be restored: it is empty in this thread, which ends now.
    words_.owned.list.next = &words_.owned.list;
    ::syscall(SYS_set_robust_list, nullptr, sizeof words_.owned);
  }
  RobustWord(const RobustWord&) = delete;
  RobustWord& operator=(const RobustWord&) = delete;
  bool registered() const { return registered_; }

 private:
  RankWords& words_;
  bool registered_ = false;
};

}  // namespace

bool is_dead(RankWords& words) {
  return (words.life.load() & FUTEX_OWNER_DIED) != 0 && words.presence.load() == Presence::joined;
}

void report_deaths(Region& region, int me) {
  for (int rank = 0; rank < region.world(); ++rank)
    if (is_dead(region.rank(rank))) region.set_fault({FaultKind::died, rank, me});
}

Guardian::Guardian(std::shared_ptr<Region> region, int rank) : region_(std::move(region)), rank_(rank) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::make_unique<std::thread>([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  while (stage_.load() == kStarting) futex_wait(stage_, kStarting, kNever);
  if (region_->rank(rank_).life.load() == 0) {
    thread_->join();
    throw CannotShareMemory(
        "[collective] this kernel has no robust futexes, by which the end of a rank is noticed; use Gloo");
  }
}

Guardian::~Guardian() {
  if (!region_->is_here()) {
    static_cast<void>(thread_.release());  // the thread belongs to the parent
    return;
  }
  stage_.store(kStopping);
  // The thread may be about to sleep on a word that we must not change, so wake it until it has stopped.
  while (stage_.load() != kStopped) {
    wake_thread();
    futex_wait(stage_, kStopping, now() + 1ms);
  }
  thread_->join();
}

void Guardian::watch() {
  std::uint32_t ready = kReady;
  stage_.compare_exchange_strong(ready, kWatching);
  futex_wake(stage_);
}

void Guardian::run() {
  ::pthread_setname_np(::pthread_self(), "ls-guardian");
  {
    RobustWord word(region_->rank(rank_), static_cast<std::uint32_t>(::syscall(SYS_gettid)));
    if (!word.registered()) region_->rank(rank_).life.store(0);
    stage_.store(kReady);
    futex_wake(stage_);
    if (!word.registered()) return;
    while (stage_.load() == kReady) futex_wait(stage_, kReady, kNever);
    while (stage_.load() == kWatching) watch_next();
    // The kernel wakes only one thread that sleeps on a word. If that was this thread, it must report the death.
    report_deaths(*region_, rank_);
  }
  stage_.store(kStopped);
  futex_wake(stage_);
}

void Guardian::watch_next() {
  const int next = region_->fault() ? rank_ : next_member();
  if (next == rank_) {
    futex_wait(stage_, kWatching, kNever);
    return;
  }
  Word& life = region_->rank(next).life;
  std::uint32_t value = life.load();
  if (is_dead(region_->rank(next))) return region_->set_fault({FaultKind::died, next, rank_});
  // The word is 0, or marked but not `joined`: the rank has just left.
  if ((value & FUTEX_TID_MASK) == 0) return;
  if ((value & FUTEX_WAITERS) == 0 && !life.compare_exchange_strong(value, value | FUTEX_WAITERS)) return;
  futex_wait(life, value | FUTEX_WAITERS, kNever);
}

int Guardian::next_member() const {
  const int world = region_->world();
  for (int step = 1; step < world; ++step) {
    const int other = (rank_ + step) % world;
    if (region_->rank(other).presence.load() == Presence::joined) return other;
  }
  return rank_;
}

void Guardian::wake_thread() {
  futex_wake(stage_);
  for (int other = 0; other < region_->world(); ++other)
    if (other != rank_) futex_wake(region_->rank(other).life);
}

}  // namespace lockstep::collective
