#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Works ahead on several threads and gives the results in order. After an exception, which take() rethrows in its
/// turn, no new work is begun. take() and wait() are for one thread at a time. The destructor stops: it waits for the
/// work that is under way, and drops the rest.
template <class Result>
class Prefetcher {
 public:
  using Work = std::function<Result()>;

  /// `next` gives the next piece of work, or nothing at the end; it is called by one thread at a time. At most `ahead`
  /// results are made or being made before they are taken.
  Prefetcher(std::function<std::optional<Work>()> next, int ahead) : next_(std::move(next)), ahead_(ahead) {}
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  void start(int threads) {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (int n = 0; n < threads; ++n) threads_.emplace_back([this] { run(); });
  }

  /// Whether take() would not wait, after at most `timeout`.
  bool wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return ready_.wait_for(lock, timeout, [this] { return is_ready(); });
  }

  /// The next result, or nothing at the end.
  std::optional<Result> take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return is_ready(); });
    if (slots_.empty()) return std::nullopt;
    const auto slot = std::move(slots_.front());
    slots_.pop_front();
    room_.notify_one();
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->result);
  }

  /// Ends the threads. take() gives nothing more.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      exhausted_ = true;
      room_.notify_all();
    }
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    slots_.clear();
  }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool done = false;
  };

  bool is_ready() const { return slots_.empty() ? exhausted_ : slots_.front()->done; }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return exhausted_ || static_cast<int>(slots_.size()) < ahead_; });
      if (exhausted_) return;
      auto slot = std::make_shared<Slot>();
      std::optional<Work> work;
      try {
        work = next_();
        if (work) slots_.push_back(slot);
      } catch (...) {
        slots_.push_back(slot);
        slot->error = std::current_exception();
        slot->done = true;
      }
      if (!work) {
        exhausted_ = true;
        room_.notify_all();
        ready_.notify_all();
        return;
      }
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        result.emplace((*work)());
      } catch (...) {
        error = std::current_exception();
      }
      work.reset();
      lock.lock();
      slot->result = std::move(result);
      slot->error = error;
      slot->done = true;
      if (error) {
        exhausted_ = true;
        room_.notify_all();
      }
      ready_.notify_all();
    }
  }

  const std::function<std::optional<Work>()> next_;
  const int ahead_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable room_;             ///< a result was taken, or there is nothing more to do
  std::condition_variable ready_;            ///< a result was made
  std::deque<std::shared_ptr<Slot>> slots_;  ///< in order
  bool exhausted_ = false;                   ///< no new work is begun
};

}  // namespace lockstep::data
