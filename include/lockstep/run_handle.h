#pragma once

#include <chrono>
#include <filesystem>
#include <iterator>
#include <lockstep/result.h>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// A run in its own thread, returned by DataParallelTrainer::start(). Copies are handles of the same run; any thread
/// may use them. A run continues when its handles are destroyed. When the program exits, runs that are not over are
/// stopped, and what they have reported is kept.
class RunHandle {
 public:
  /// Waits for the end. Throws the same errors as fit(), and TimeoutError if the run is not over in time; the run then
  /// continues. A stopped run gives a Result like any other; its state is "stopped". Here and in next(): throws
  /// ConfigError in a callback of the run, which cannot end meanwhile, and in a process that was forked.
  Result wait(std::optional<std::chrono::duration<double>> timeout = std::nullopt) const;
  /// Ends the run; does not wait for the end. The function is not notified: its processes are killed. `checkpoint`:
  /// what has been reported is kept first, including checkpoints that are still being written.
  void stop(bool checkpoint = true) const;

  /// "waiting" (for resources), "running", or Result::state when it is over.
  std::string state() const;
  /// Rank 0's last report so far, with the autofilled keys.
  Value metrics() const;
  std::string name() const;
  std::filesystem::path path() const;

  /// Waits for rank 0's next report that next() has not returned yet. Returns nothing if the run is over. At most
  /// 10,000 reports are kept until they are taken; then the oldest are dropped, and `dropped()` counts them.
  std::optional<Value> next() const;
  long dropped() const;

  /// The same as a range: `for (const Value& metrics : handle)`.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = const Value*;
    using reference = const Value&;

    Iterator() = default;
    explicit Iterator(const RunHandle& handle) : handle_(&handle), value_(handle.next()) {}
    const Value& operator*() const { return *value_; }
    Iterator& operator++() {
      value_ = handle_->next();
      return *this;
    }
    bool operator==(const Iterator& other) const { return value_.has_value() == other.value_.has_value(); }

   private:
    const RunHandle* handle_ = nullptr;
    std::optional<Value> value_;
  };
  Iterator begin() const { return Iterator(*this); }
  Iterator end() const { return {}; }

 private:
  friend class DataParallelTrainer;
  class Run;
  explicit RunHandle(std::shared_ptr<Run> run) : run_(std::move(run)) {}
  std::shared_ptr<Run> run_;
};

}  // namespace lockstep
