#pragma once

#include <arrow/type_fwd.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "data/dataset.h"
#include "data/prefetch.h"

namespace lockstep::data {

struct StreamOptions {
  std::int64_t batch_size = 0;  ///< 0: what each block holds
  bool drop_last = false;       ///< drop a batch that is not full
  int prefetch = 2;             ///< blocks that are read ahead, each on a thread of its own
};

/// All rows of a data set once, in their own order. Nothing has to be counted, so that the first batch comes as soon as
/// a block is read. Threads read ahead from start() on; the destructor ends them. Memory: `prefetch` + 1 blocks and one
/// batch. All functions are for one thread at a time.
class Stream {
 public:
  /// Throws ConfigError for impossible options.
  Stream(Dataset dataset, const StreamOptions& options);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Does first what needs all rows, as a sort.
  void start();
  /// Whether next() would not wait for a thread, if none of them takes longer than `timeout`. Rethrows what reading
  /// threw; the stream is over then.
  bool wait(std::chrono::milliseconds timeout);
  /// The next batch, or null at the end. Throws as wait() does.
  std::shared_ptr<arrow::RecordBatch> next();

 private:
  bool is_enough() const;

  const Dataset dataset_;
  const StreamOptions options_;
  std::size_t blocks_ = 0;
  std::size_t next_block_ = 0;
  bool ended_ = false;

  std::deque<std::shared_ptr<arrow::RecordBatch>> pieces_;  ///< read, in order, and not yet given
  std::int64_t waiting_rows_ = 0;                           ///< of pieces_

  Prefetcher<std::shared_ptr<arrow::Table>> prefetcher_;  ///< last: its threads use the others
};

}  // namespace lockstep::data
