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

/// The kernel's list of robust futexes of this thread, with one entry.
class RobustWord {
 public:
  RobustWord(Word& word, std::uint32_t thread) : word_(word) {
    head_.list.next = &entry_;
    entry_.next = &head_.list;
    head_.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&entry_);
    head_.list_op_pending = nullptr;
    word_.store(thread);
    registered_ = ::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
  }
  ~RobustWord() {
    word_.store(0);
    futex_wake(word_);
    // glibc's own list is empty in this thread; the thread ends now.
    head_.list.next = &head_.list;
    ::syscall(SYS_set_robust_list, nullptr, sizeof head_);
  }
  RobustWord(const RobustWord&) = delete;
  RobustWord& operator=(const RobustWord&) = delete;
  bool registered() const { return registered_; }

 private:
  Word& word_;
  robust_list entry_{};
  robust_list_head head_{};
  bool registered_ = false;
};

}  // namespace

bool is_dead(RankWords& words) {
  return (words.life.load() & FUTEX_OWNER_DIED) != 0 && words.presence.load() == Presence::joined;
}

Guardian::Guardian(std::shared_ptr<Region> region, int rank)
    : region_(std::move(region)), rank_(rank), owner_pid_(::getpid()) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::make_unique<std::thread>([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  while (stage_.load() == kStarting) futex_wait(stage_, kStarting, kNever);
  if (region_->rank(rank_).life.load() == 0) {
    thread_->join();
    throw EngineError(
        "[collective] this kernel has no robust futexes, by which the end of a rank is noticed; use Gloo");
  }
}

Guardian::~Guardian() {
  if (::getpid() != owner_pid_) {
    static_cast<void>(thread_.release());  // the thread is the parent's
    return;
  }
  stage_.store(kStopping);
  // The thread may be just about to sleep on a word that is not ours to change: wake it until it has heard.
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
    RobustWord word(region_->rank(rank_).life, static_cast<std::uint32_t>(::syscall(SYS_gettid)));
    if (!word.registered()) region_->rank(rank_).life.store(0);
    stage_.store(kReady);
    futex_wake(stage_);
    if (!word.registered()) return;
    while (stage_.load() == kReady) futex_wait(stage_, kReady, kNever);
    while (stage_.load() == kWatching) watch_next();
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
  // 0, or marked although not `joined`: it has just left.
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
