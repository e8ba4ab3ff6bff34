#pragma once

#include <arrow/type_fwd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "data/cursor.h"
#include "data/dataset.h"
#include "data/gather.h"
#include "data/order.h"
#include "data/prefetch.h"
#include "data/shared_blocks.h"

namespace lockstep::data {

struct PassOptions {
  DealOptions deal{};
  int prefetch = 2;  ///< units (windows, or blocks if not shuffled) that are read ahead, each on a thread of its own
  std::shared_ptr<SharedCache> cache{};    ///< of the ranks of this node; nothing: this rank reads all that it needs
  std::shared_ptr<ReusedMemory> memory{};  ///< for shuffled rows; nothing: the pass has its own
};

/// One pass of one rank over an epoch, or the rest of one. Threads read ahead from start() on; the destructor ends
/// them. Memory: `prefetch` + 1 windows and the blocks that they lie in, however large the data set is. All functions
/// are for one thread at a time.
class Pass {
 public:
  /// Throws ConfigError for impossible options.
  Pass(Dataset dataset, const OrderOptions& order, Start start, const PassOptions& options);
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  void start();
  std::int64_t batches() const { return deal_.batches(); }
  /// Whether next(count) would not wait for a thread, if none of them takes longer than `timeout`. Rethrows what
  /// reading threw; the pass is over then.
  bool wait(std::chrono::milliseconds timeout, std::int64_t count = 1);
  /// The next batch, or null at the end. Throws as wait() does.
  std::shared_ptr<arrow::RecordBatch> next() { return next(1); }
  /// At most `count` batches in one; null at the end.
  std::shared_ptr<arrow::RecordBatch> next(std::int64_t count);
  /// Whether the memory of what next() gave last belongs to the user, and must not be changed.
  bool is_borrowed() const { return is_borrowed_; }
  /// The batches that next() has given.
  std::int64_t given() const { return given_; }
  /// The global position when every rank has had `given` batches.
  std::int64_t position_after(std::int64_t given) const { return deal_.position_after(given); }
  std::int64_t position() const { return position_after(given_); }
  /// What the threads have spent, all together, so far.
  struct Times {
    std::chrono::nanoseconds reading{};
    std::chrono::nanoseconds shuffling{};
  };
  Times times() const { return {std::chrono::nanoseconds(reading_), std::chrono::nanoseconds(shuffling_)}; }

 private:
  struct Piece {
    std::shared_ptr<arrow::RecordBatch> rows;
    bool is_borrowed = false;
  };
  using Pieces = std::vector<Piece>;
  struct Job {
    Range unit;
    std::vector<Range> places;  ///< of this rank
  };
  struct HeldBlock {
    std::shared_future<SharedBlocks::Got> got;
    std::int64_t end;  ///< the place after its last row: no later unit needs it
  };

  std::optional<Job> next_job();
  std::optional<Prefetcher<Pieces>::Work> next_work();
  Pieces done(const Job& job);
  Pieces read(const Job& job);
  std::int64_t rows_of_next(std::int64_t count) const;
  SharedBlocks::Got block(std::size_t number, std::int64_t end);
  SharedBlocks::Got read_block(std::size_t number, std::int64_t end);
  void release_blocks(const Job& finished);

  const Dataset dataset_;
  const EpochOrder order_;
  const Deal deal_;
  const int prefetch_;
  const std::shared_ptr<ReusedMemory> memory_;
  std::optional<SharedBlocks> shared_;

  std::deque<Piece> pieces_;       ///< read, in order, and not yet given
  std::int64_t waiting_rows_ = 0;  ///< of pieces_
  std::int64_t given_ = 0;         ///< batches
  bool is_borrowed_ = false;

  std::int64_t next_batch_ = 0;  ///< of next_job()
  std::int64_t next_row_ = 0;    ///< within that batch

  std::atomic<std::int64_t> reading_ = 0;  ///< nanoseconds
  std::atomic<std::int64_t> shuffling_ = 0;

  std::mutex mutex_;
  std::map<std::size_t, HeldBlock> blocks_;  ///< that running or later jobs need
  std::multiset<std::int64_t> running_;      ///< where the units of running jobs begin
  std::int64_t upcoming_ = 0;                ///< where the unit of the next job begins

  Prefetcher<Pieces> prefetcher_;  ///< last: its threads use the others
};

struct IteratorOptions {
  OrderOptions order{};
  int rank = 0;
  int world = 1;
  Tail tail = Tail::pad;
  int prefetch = 2;
  std::shared_ptr<SharedCache> cache{};
};

/// Passes over a data set, one per epoch, and their position, which can be saved and loaded, also with another number
/// of ranks. For one thread at a time.
class Iterator {
 public:
  /// Throws ConfigError for impossible options.
  Iterator(Dataset dataset, const IteratorOptions& options);

  const Dataset& dataset() const { return dataset_; }
  Cursor& cursor() { return cursor_; }
  const Cursor& cursor() const { return cursor_; }
  /// Begins the next pass. An earlier one may still be read, but the position is that of this one.
  std::shared_ptr<Pass> begin(std::int64_t batch_size, bool drop_last);
  /// The next batch of `pass`, or null at its end; moves the position.
  std::shared_ptr<arrow::RecordBatch> next(Pass& pass);
  /// For who takes batches from `pass` ahead of their use: `given` of them were used by now. Moves the position, unless
  /// another pass has begun.
  void move(const Pass& pass, std::int64_t given);
  /// The same for the end of the pass.
  void finish(const Pass& pass);

 private:
  const Dataset dataset_;
  const IteratorOptions options_;
  const std::shared_ptr<ReusedMemory> memory_;
  Cursor cursor_;
  std::weak_ptr<Pass> pass_;
};

}  // namespace lockstep::data
