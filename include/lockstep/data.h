#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <iterator>
#include <lockstep/dataset.h>
#include <lockstep/session.h>
#include <memory>
#include <string>

/// Data sets in training functions. It needs Arrow: link Lockstep::data.
namespace lockstep {

/// One rank's part of a data set. Session::dataset_shard() gives it:
///
///     auto shard = session.dataset_shard("train");
///     for (int epoch = 0; epoch < 10; ++epoch)
///       for (const std::shared_ptr<arrow::RecordBatch>& batch : shard.batches(256)) step(*batch);
///
/// Its position is saved with every checkpoint that rank 0 reports, and a worker that starts from the checkpoint goes
/// on there. A handle: copies are the same shard. For one thread at a time.
class DatasetShard {
 public:
  class Loop;
  /// One epoch, or the rest of one, in batches of this rank. Threads read ahead while the range lives. An earlier loop
  /// that was left is over. Throws ConfigError for a batch size below 1. Reading throws StorageError that names the
  /// file.
  Loop batches(std::int64_t batch_size, bool drop_last = false);

  /// Of all ranks together.
  std::int64_t count() const;
  std::shared_ptr<arrow::Schema> schema() const;
  /// The epoch that runs, else the next one.
  std::int64_t epoch() const;
  /// The next loop is over this epoch.
  void set_epoch(std::int64_t epoch);
  /// The position; as Python's state_dict().
  Value state() const;
  /// The next loop goes on there. Throws ConfigError if it is the state of other data or another order.
  void load_state(const Value& state);

 private:
  friend class Session;
  struct State;
  explicit DatasetShard(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// A range that is gone through once.
class DatasetShard::Loop {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = std::shared_ptr<arrow::RecordBatch>;

    const value_type& operator*() const { return batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return batch_ == nullptr; }

   private:
    friend class Loop;
    explicit Iterator(Loop& loop) : loop_(&loop) { ++*this; }
    Loop* loop_;
    value_type batch_;
  };

  Loop(Loop&&) noexcept;
  Loop& operator=(Loop&&) noexcept;
  ~Loop();
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class DatasetShard;
  struct Pass;
  explicit Loop(std::unique_ptr<Pass> pass);
  std::unique_ptr<Pass> pass_;
};

}  // namespace lockstep
