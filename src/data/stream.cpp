#include "data/stream.h"

#include <arrow/record_batch.h>
#include <arrow/table.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "data/status.h"

namespace lockstep::data {

Stream::Stream(Dataset dataset, const StreamOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      prefetcher_(
          [this]() -> std::optional<Prefetcher<std::shared_ptr<arrow::Table>>::Work> {
            if (next_block_ == blocks_) return std::nullopt;
            return [this, block = next_block_++] { return dataset_.read(block); };
          },
          options.prefetch) {
  if (options.prefetch < 1)
    throw ConfigError("[data] prefetch is " + std::to_string(options.prefetch) + "; it must be 1 or more");
  if (options.batch_size < 0)
    throw ConfigError("[data] batch_size is " + std::to_string(options.batch_size) + "; it must be 1 or more");
}

Stream::~Stream() { prefetcher_.stop(); }

void Stream::start() {
  dataset_.source()->prepare();
  dataset_.schema();
  blocks_ = dataset_.source()->blocks();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  prefetcher_.start(std::min(options_.prefetch, cores));
}

bool Stream::is_enough() const {
  return ended_ || (waiting_rows_ > 0 && waiting_rows_ >= std::max(options_.batch_size, std::int64_t{1}));
}

bool Stream::wait(std::chrono::milliseconds timeout) {
  while (!is_enough()) {
    if (!prefetcher_.wait(timeout)) return false;
    auto table = prefetcher_.take();
    if (!table) {
      ended_ = true;
    } else if ((*table)->num_rows() > 0) {
      waiting_rows_ += (*table)->num_rows();
      pieces_.push_back(value_of((*table)->CombineChunksToBatch(), "a block"));
    }
  }
  return true;
}

std::shared_ptr<arrow::RecordBatch> Stream::next() {
  while (!wait(std::chrono::hours(1))) {
  }
  const std::int64_t size =
      options_.batch_size > 0 ? options_.batch_size : (pieces_.empty() ? 0 : pieces_.front()->num_rows());
  if (waiting_rows_ == 0 || (waiting_rows_ < size && options_.drop_last)) return nullptr;
  std::vector<std::shared_ptr<arrow::RecordBatch>> taken;
  for (std::int64_t left = std::min(size, waiting_rows_); left > 0;) {
    auto& front = pieces_.front();
    const std::int64_t count = std::min(left, front->num_rows());
    taken.push_back(count == front->num_rows() ? front : front->Slice(0, count));
    left -= count;
    waiting_rows_ -= count;
    if (count == front->num_rows())
      pieces_.pop_front();
    else
      front = front->Slice(count);
  }
  return taken.size() == 1 ? taken.front() : value_of(arrow::ConcatenateRecordBatches(taken), "a batch");
}

}  // namespace lockstep::data
