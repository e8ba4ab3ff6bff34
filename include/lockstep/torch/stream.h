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

/// Where a loader of a stream is, as a plain value; the epoch and the number of batches when it goes on there. Throws
/// ConfigError when `state` is no such value, or of another number of workers.
Value stream_state(std::int64_t epoch, std::int64_t batches);
std::pair<std::int64_t, std::int64_t> stream_position(const Value& state);
/// Throws ConfigError for options that cannot be, and for those that a stream does not have.
void check_stream_options(const DataLoaderOptions& options);

/// Reads a dataset that gives the next batch, and not the samples that one asks for.
template <class D>
class StreamReader {
 public:
  using Answer = decltype(std::declval<D&>().get_batch(std::size_t{}));
  /// Whether it says itself where an epoch ends; one that does can begin anew.
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

/// What prepare_data_loader() makes of a stream: LibTorch's StatefulDataset, StreamDataset, ChunkDataset, whose
/// get_batch(size) gives whatever comes next. A stream cannot be divided from outside: each worker reads its own, and
/// sees by rank() and world_size() which part that is (ChunkDataset: by its DistributedRandomSampler).
///
/// All workers get the same number of batches: before each one they agree that all have one, and the epoch is over for
/// all when it is for one; the rest of the others is dropped. So every worker must be in the loop, or leave it at the
/// same batch. A stateful dataset ends by an empty batch and is reset() for each epoch; any other after size() samples
/// of this worker's, or, without size, never: leave its loop by `break`.
///
/// The rest is as in DataLoader. One thread reads ahead, however many num_threads says. The order is the stream's own
/// affair: shuffle, order and drop_last are refused.
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

  /// Counts batches: {"kind": "stream", "epoch": 1, "batches": 7, "world_size": 2}. To go on there, with as many
  /// workers and the same batch size, the stream is read up to it and dropped.
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
    std::int64_t upcoming = 0;  ///< the epoch of the next pass, and the batches that it leaves out
    std::int64_t skip = 0;
    std::int64_t epoch = 0;  ///< of the pass that is going on, and its batches that were handed out
    std::int64_t handed = 0;
    std::optional<Batch> batch;
    std::optional<detail::Batches<std::optional<Batch>>> batches;  ///< last: its thread reads
  };

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::torch
