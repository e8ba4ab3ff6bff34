#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <lockstep/torch/batches.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/order.h>
#include <lockstep/torch/stream.h>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::torch {

namespace detail {

template <class D>
concept BatchedDataset = requires(D& dataset, ::c10::ArrayRef<std::size_t> samples) {
  dataset.get_batch(samples);
  dataset.size();
};
template <class D>
concept Indexable = requires(const D& dataset, std::size_t sample) {
  dataset[sample];
  dataset.size();
};

template <class D>
concept Stream = !BatchedDataset<D> && requires(D & dataset) {
  dataset.get_batch(std::size_t{});
  dataset.size();
};

/// The rows of a tensor as samples.
struct Rows {
  ::torch::Tensor get_batch(::c10::ArrayRef<std::size_t> samples) const {
    const auto wanted = ::torch::empty({static_cast<std::int64_t>(samples.size())}, ::torch::kInt64);
    std::copy(samples.begin(), samples.end(), wanted.data_ptr<std::int64_t>());
    return tensor.index_select(0, wanted.to(tensor.device()));
  }
  std::optional<std::size_t> size() const {
    return tensor.defined() && tensor.dim() > 0 ? std::optional(static_cast<std::size_t>(tensor.size(0)))
                                                : std::nullopt;
  }
  ::torch::Tensor tensor;
};

/// Data that may have other owners.
template <class D>
struct SharedData {
  decltype(auto) operator[](std::size_t sample) const { return std::as_const(*data)[sample]; }
  std::size_t size() const { return data->size(); }
  std::shared_ptr<D> data;
};

template <class D>
D as_dataset(D dataset) {
  return dataset;
}
inline Rows as_dataset(::torch::Tensor tensor) { return {std::move(tensor)}; }
template <class D>
auto as_dataset(std::shared_ptr<D> dataset) {
  if constexpr (Indexable<D>)
    return SharedData<D>{std::move(dataset)};
  else
    return ::torch::data::datasets::SharedBatchDataset<D>(std::move(dataset));
}

/// A dataset as the loader's threads read it. A LibTorch dataset is copied for each thread, as in LibTorch's own
/// loader, because reading may change it. An indexable one is shared, and read through its const operator[].
template <class D>
class Source {
 public:
  Source(D dataset, int threads) {
    if constexpr (BatchedDataset<D>)
      for (int copy = 1; copy < threads; ++copy) copies_.push_back(std::make_unique<D>(dataset));
    copies_.push_back(std::make_unique<D>(std::move(dataset)));
  }

  std::optional<std::size_t> size() const { return copies_.front()->size(); }

  auto load(int thread, const std::vector<std::size_t>& samples) {
    if constexpr (BatchedDataset<D>) {
      return collated(copies_[static_cast<std::size_t>(thread)]->get_batch(samples));
    } else {
      const D& dataset = *copies_.front();
      std::vector<std::decay_t<decltype(dataset[std::size_t{}])>> batch;
      batch.reserve(samples.size());
      for (const std::size_t sample : samples) batch.push_back(dataset[sample]);
      return collated(std::move(batch));
    }
  }

 private:
  std::vector<std::unique_ptr<D>> copies_;
};

}  // namespace detail

/// Made by prepare_data_loader(): returns this worker's batches, and knows its position.
///
///     for (int64_t epoch = loader.epoch(); epoch < 10; ++epoch)
///       for (auto& batch : loader) {
///         ...
///         session.report(metrics, lockstep::torch::checkpoint(*model, optimizer, {{"loader", loader.state()}}));
///       }
///
/// A loop is one pass over the data. Each loop is the next epoch, starting with 0, and may be left early. A new loop,
/// and load_state(), end the one before. A program that resumes from a checkpoint without the loader's state must call
/// set_epoch(); otherwise the orders of the first epochs are repeated. Use it from one thread.
template <class D>
class DataLoader {
  struct State;

 public:
  using Batch = decltype(std::declval<detail::Source<D>&>().load(0, {}));

  DataLoader(D dataset, const DataLoaderOptions& options)
      : state_(std::make_unique<State>(std::move(dataset), options)) {}

  using Iterator = detail::BatchIterator<State, Batch>;

  /// Begins the next pass.
  Iterator begin() const {
    state_->start();
    return Iterator(state_->advance() ? state_.get() : nullptr);
  }
  Iterator end() const { return Iterator(nullptr); }
  /// LibTorch's loaders are pointers: `for (auto& batch : *loader)` works here too.
  DataLoader& operator*() { return *this; }

  /// The number of batches in a whole epoch; the same on all workers.
  std::size_t size() const { return static_cast<std::size_t>(state_->schedule.batches()); }
  /// The epoch of the current pass, or of the next one if there is none.
  std::int64_t epoch() const { return state_->schedule.epoch(); }
  /// Makes the next pass that of `epoch`; later passes count from there.
  void set_epoch(std::int64_t epoch) { state_->schedule.set_epoch(epoch); }

  /// The loader's position, for the `extra` of a checkpoint. It counts the samples of the epoch that all workers
  /// together have received, and is equal on workers that have received the same number of batches. A batch counts once
  /// the loop has received it, not when it is loaded.
  ///
  ///     {"kind": "samples", "epoch": 1, "samples": 64, "total": 1000, "order": "permuted, seed 0"}
  Value state() const { return state_->schedule.state(); }
  /// Makes the next pass continue from the position in `state`; the number of workers and the batch size may differ.
  /// Throws ConfigError, and changes nothing, if it is not the state of such a loader with such data.
  void load_state(const Value& state) {
    state_->schedule.load_state(state);
    state_->batches.reset();
  }
  /// The same under the names of Python's loaders.
  Value state_dict() const { return state(); }
  void load_state_dict(const Value& state) { load_state(state); }

 private:
  struct State {
    State(D dataset, const DataLoaderOptions& given)
        : options(given),
          source(std::move(dataset), given.num_threads),
          schedule(detail::make_schedule(source.size(), given)) {}

    void start() {
      batches.reset();  // its threads end before the next pass begins
      batch.reset();
      auto pass = schedule.begin();
      batches.emplace(
          [this, pass](int thread, std::int64_t number) { return source.load(thread, pass->samples(number)); },
          options.num_threads, options.prefetch, pass->batches());
    }

    bool advance() {
      batch.reset();
      if (batches) batch = batches->next();
      if (!batch) {
        if (batches) schedule.finish();
        batches.reset();
        return false;
      }
      if (options.move_to_device) *batch = detail::moved(std::move(*batch), device());
      schedule.hand_out();
      return true;
    }

    DataLoaderOptions options;
    detail::Source<D> source;
    detail::Schedule schedule;
    std::optional<Batch> batch;
    std::optional<detail::Batches<Batch>> batches;  ///< last: its threads read the source
  };

  std::unique_ptr<State> state_;
};

/// Makes a loader that returns this worker's part of the data, on this worker's device.
///
///     auto loader = lockstep::torch::prepare_data_loader(dataset, {.batch_size = 32, .shuffle = true});
///     for (auto& batch : loader) train_step(batch.data, batch.target);
///
/// `dataset` is a LibTorch dataset, or anything with a const operator[] and size(), or a shared_ptr to one of these, or
/// a tensor whose rows are the samples. If the dataset collates batches itself, as
/// map(torch::data::transforms::Stack<>()) does, they are returned unchanged. Single samples (tensors, numbers,
/// Examples, pairs and tuples of them) are stacked, integers as int64; anything else becomes a vector. A LibTorch
/// dataset is copied for each thread; a shared one must be safe to read from several threads.
///
/// Each worker gets every world-size-th sample of an order that is the same on all. All workers get the same number of
/// batches: with drop_last, samples that do not fill a batch on every worker are dropped; otherwise a worker that would
/// have one batch less gets a sample from the beginning of the order again. num_threads does not affect the order. For
/// streams (get_batch(size) instead of get_batch(samples)) it returns a StreamLoader: each worker reads its own stream.
///
/// Throws ConfigError for a dataset without a size and for invalid options. An exception of the dataset is thrown in
/// place of its batch.
template <class D>
auto prepare_data_loader(D dataset, const DataLoaderOptions& options = {}) {
  using Dataset = decltype(detail::as_dataset(std::move(dataset)));
  constexpr bool known = detail::BatchedDataset<Dataset> || detail::Indexable<Dataset>;
  static_assert(known || detail::Stream<Dataset>,
                "prepare_data_loader() takes a dataset of LibTorch's (get_batch and size), a tensor, or anything that "
                "has size() and a const operator[]");
  if constexpr (known)
    return DataLoader<Dataset>(detail::as_dataset(std::move(dataset)), options);
  else if constexpr (detail::Stream<Dataset>)
    return StreamLoader<Dataset>(detail::as_dataset(std::move(dataset)), options);
}

}  // namespace lockstep::torch
