#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <lockstep/torch/batches.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/order.h>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::torch {

namespace detail {

/// The position of a stream's loader as a plain value, and the inverse: epoch and number of batches. The inverse throws
/// ConfigError if `state` is not such a value, or is of another number of workers.
Value stream_state(std::int64_t epoch, std::int64_t batches);
std::pair<std::int64_t, std::int64_t> stream_position(const Value& state);
/// Throws ConfigError for invalid options, and for those that do not apply to a stream.
void check_stream_options(const DataLoaderOptions& options);

/// Reads a dataset that returns the next batch, rather than given samples.
template <class D>
class StreamReader {
 public:
  using Answer = decltype(std::declval<D&>().get_batch(std::size_t{}));
  /// Whether the dataset says where an epoch ends; if so, it can be reset.
  static constexpr bool kEnds = requires(Answer answer) {
    answer.has_value();
    *answer;
  };

  StreamReader(D dataset, std::int64_t batch_size)
      : dataset_(std::move(dataset)), batch_size_(static_cast<std::size_t>(batch_size)) {}

  /// A new epoch; the first `skip` batches are read and dropped.
  void restart(std::int64_t skip) {
    if constexpr (kEnds) dataset_.reset();
    ended_ = false;
    read_ = 0;
    while (skip-- > 0) next();
  }

  auto next() {
    if constexpr (kEnds) {
      std::optional<decltype(collated(std::move(*std::declval<Answer&>())))> batch;
      if (ended_) return batch;
      if (auto answer = dataset_.get_batch(batch_size_))
        batch = collated(std::move(*answer));
      else
        ended_ = true;
      return batch;
    } else {
      std::optional<decltype(collated(std::declval<Answer>()))> batch;
      const std::optional<std::size_t> size = dataset_.size();
      const std::size_t count = size ? std::min(batch_size_, *size - read_) : batch_size_;
      if (count == 0) return batch;
      batch = collated(dataset_.get_batch(count));
      read_ += count;
      return batch;
    }
  }

 private:
  D dataset_;
  std::size_t batch_size_;
  bool ended_ = false;
  std::size_t read_ = 0;  ///< samples of this epoch
};

}  // namespace detail

/// What prepare_data_loader() returns for a stream: LibTorch's StatefulDataset, StreamDataset, ChunkDataset, whose
/// get_batch(size) returns whatever comes next. A stream cannot be divided from outside: each worker reads its own
/// part, which it selects by rank() and world_size() (ChunkDataset: by its DistributedRandomSampler).
///
/// All workers get the same number of batches: before each batch they check that all have one. The epoch ends for all
/// when it ends for one; what the others have left is dropped. So every worker must run the loop, and leave it at the
/// same batch. A stateful dataset ends with an empty batch and is reset() for each epoch. Any other dataset ends after
/// size() samples of this worker, or, without a size, never: leave its loop with `break`.
///
/// The rest is as in DataLoader. At most one thread reads ahead, even if num_threads is larger. The stream decides its
/// own order: shuffle, order and drop_last are refused.
template <class D>
class StreamLoader {
  struct State;

 public:
  using Batch = typename decltype(std::declval<detail::StreamReader<D>&>().next())::value_type;

  StreamLoader(D dataset, const DataLoaderOptions& options)
      : state_(std::make_unique<State>(std::move(dataset), options)) {}

  using Iterator = detail::BatchIterator<State, Batch>;

  /// Begins the next pass.
  Iterator begin() const {
    state_->start();
    return Iterator(state_->advance() ? state_.get() : nullptr);
  }
  Iterator end() const { return Iterator(nullptr); }
  /// LibTorch's loaders are pointers: `for (auto& batch : *loader)` works here too.
  StreamLoader& operator*() { return *this; }

  std::int64_t epoch() const { return state_->batches ? state_->epoch : state_->upcoming; }
  void set_epoch(std::int64_t epoch) {
    if (epoch != state_->upcoming) state_->skip = 0;
    state_->upcoming = epoch;
  }

  /// Counts batches: {"kind": "stream", "epoch": 1, "batches": 7, "world_size": 2}. To continue there, with the same
  /// number of workers and batch size, the first batches are read and dropped.
  Value state() const { return detail::stream_state(epoch(), state_->batches ? state_->handed : state_->skip); }
  void load_state(const Value& state) {
    const auto [epoch, batches] = detail::stream_position(state);
    state_->batches.reset();
    state_->upcoming = epoch;
    state_->skip = batches;
  }
  Value state_dict() const { return state(); }
  void load_state_dict(const Value& state) { load_state(state); }

 private:
  struct State {
    State(D dataset, const DataLoaderOptions& given) : options(given), reader(std::move(dataset), given.batch_size) {
      detail::check_stream_options(given);
    }

    void start() {
      batches.reset();  // its thread ends before the next pass begins
      epoch = upcoming++;
      handed = std::exchange(skip, 0);
      reader.restart(handed);
      batches.emplace([this](int, std::int64_t) { return reader.next(); }, options.num_threads > 0 ? 1 : 0,
                      options.prefetch, std::numeric_limits<std::int64_t>::max());
    }

    bool advance() {
      batch.reset();
      if (!batches) return false;
      if (auto next = batches->next()) batch = std::move(*next);
      if (all_reduce(batch ? 1 : 0, Reduce::min) < 1) {
        batch.reset();
        batches.reset();
        return false;
      }
      if (options.move_to_device) *batch = detail::moved(std::move(*batch), device());
      ++handed;
      return true;
    }

    DataLoaderOptions options;
    detail::StreamReader<D> reader;
    std::int64_t upcoming = 0;  ///< the epoch of the next pass, and the batches that it skips
    std::int64_t skip = 0;
    std::int64_t epoch = 0;  ///< of the current pass, and its batches that were returned
    std::int64_t handed = 0;
    std::optional<Batch> batch;
    std::optional<detail::Batches<std::optional<Batch>>> batches;  ///< last: its thread reads
  };

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::torch
