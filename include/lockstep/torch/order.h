#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::torch {

/// How prepare_data_loader() divides and loads the data.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;          ///< per worker
  bool shuffle = false;                 ///< a new order in each epoch
  std::optional<std::uint64_t> seed{};  ///< of the order; nothing: that of enable_reproducibility(), else 0
  bool as_in_python = false;            ///< shuffle as Python's loader does with this seed; takes 8 bytes per sample
  /// Your own order instead: the samples of an epoch, of all workers together. It must depend only on the epoch,
  /// because every worker calls it, and have the same length in all epochs; it may omit or repeat samples.
  std::function<std::vector<std::int64_t>(std::int64_t epoch)> order{};
  bool drop_last = false;      ///< drop samples that do not fill a batch on every worker
  int num_threads = 1;         ///< threads that load ahead; 0: next batch is loaded on demand
  int prefetch = 2;            ///< batches that each thread may load ahead
  bool move_to_device = true;  ///< move tensors to device()
};

namespace detail {

struct Team {
  int rank = 0;
  int world = 1;
};

/// One pass over the data, or the rest of one: the samples of each batch. Any thread may call.
class Pass {
 public:
  /// How the samples are ordered and divided; src/torch/order.cpp defines it.
  struct Plan;

  explicit Pass(std::unique_ptr<const Plan> plan);
  ~Pass();
  std::int64_t batches() const;
  /// The samples of a batch, by its number in this pass.
  std::vector<std::size_t> samples(std::int64_t batch) const;
  const Plan& plan() const { return *plan_; }

 private:
  std::unique_ptr<const Plan> plan_;
};

/// The position of a loader: the epoch, and how much of it was returned. Of the data it knows only the size.
class Schedule {
 public:
  /// For a dataset with `size` samples. Throws ConfigError for invalid options.
  Schedule(std::int64_t size, const DataLoaderOptions& options, Team team, std::uint64_t seed);

  /// The batches of this rank in a whole epoch.
  std::int64_t batches() const;
  std::int64_t epoch() const;
  void set_epoch(std::int64_t epoch) { upcoming_ = epoch; }
  /// Begins a new pass, at the position of load_state() or at the beginning of the next epoch.
  std::shared_ptr<const Pass> begin();
  /// Counts a batch that was returned; finish() ends the pass.
  void hand_out() { ++handed_; }
  void finish() { finished_ = true; }
  Value state() const;
  void load_state(const Value& state);

 private:
  Value resting(std::int64_t epoch) const;
  /// The user's own order of an epoch, if there is one.
  std::optional<std::vector<std::int64_t>> drawn(std::int64_t epoch) const;

  std::int64_t size_;   ///< of the dataset
  std::int64_t total_;  ///< of an epoch; differs from size_ only with the user's own order
  DataLoaderOptions options_;
  Team team_;
  std::uint64_t seed_;
  std::int64_t upcoming_ = 0;  ///< the epoch of the next pass
  std::shared_ptr<const Pass> pass_;
  std::int64_t handed_ = 0;
  bool finished_ = false;
  std::optional<Value> pending_;
};

/// For this worker: with its rank, the world size, and the seed of enable_reproducibility().
Schedule make_schedule(std::optional<std::size_t> size, const DataLoaderOptions& options);

}  // namespace detail
}  // namespace lockstep::torch
