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

/// How prepare_data_loader() divides and loads.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;          ///< of one worker
  bool shuffle = false;                 ///< a new order in each epoch
  std::optional<std::uint64_t> seed{};  ///< of the order; nothing: enable_reproducibility()'s, else 0
  bool as_in_python = false;            ///< shuffle as Python's loader does with this seed; 8 bytes a sample
  /// An order of your own instead: the samples of an epoch, of all workers together. It must follow from the epoch
  /// alone, since every worker asks for itself, and be of the same length in all epochs; it may leave out or repeat
  /// samples.
  std::function<std::vector<std::int64_t>(std::int64_t epoch)> order{};
  bool drop_last = false;      ///< leave out what does not fill a batch on every worker
  int num_threads = 1;         ///< that load ahead; 0: batches are loaded when they are asked for
  int prefetch = 2;            ///< batches that each of them may be ahead
  bool move_to_device = true;  ///< tensors come on device()
};

namespace detail {

/// A permutation of 0 ... size - 1 that is computed place by place, in constant memory: the same for the same size and
/// key on every machine. A Feistel network whose results that are too large are permuted again.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key);
  std::uint64_t operator()(std::uint64_t place) const;

 private:
  std::uint64_t encrypted(std::uint64_t value) const;
  std::uint64_t size_;
  int bits_;
  std::uint64_t keys_[8];
};

/// A key in which seed and epoch both count: seed 1 in epoch 0 is not seed 0 in epoch 1.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch);

/// The places of an epoch that one rank takes: first, first + step, ..., `count` of them, and maybe one more that was
/// taken already.
struct Share {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
  std::optional<std::int64_t> extra{};

  std::int64_t size() const { return count + (extra ? 1 : 0); }
  std::int64_t place(std::int64_t n) const { return n < count ? first + n * step : *extra; }
};

struct Team {
  int rank = 0;
  int world = 1;
};

/// What a rank takes of the rest, from `start`, of `total` places. All ranks get the same number of batches. A rank is
/// padded only if it had a batch less otherwise, with a place from the beginning of the order; with `drop_last` all
/// that does not fill a batch on every rank is left out instead.
Share share(std::int64_t total, std::int64_t start, Team team, std::int64_t batch_size, bool drop_last);

/// One pass over the data, or the rest of one: which samples are in each batch.
class Pass {
 public:
  std::int64_t epoch() const { return epoch_; }
  std::int64_t batches() const { return batches_; }
  /// The samples of a batch, by its number in this pass.
  std::vector<std::size_t> samples(std::int64_t batch) const;

 private:
  friend class Schedule;
  std::int64_t epoch_ = 0;
  std::int64_t start_ = 0;
  std::int64_t batches_ = 0;
  std::int64_t batch_size_ = 1;
  Share share_;
  std::optional<Permutation> permutation_;          ///< of a shuffle that is computed place by place
  std::optional<std::vector<std::int64_t>> order_;  ///< of one that is drawn as a whole; neither: the dataset's own
  std::string order_name_;
};

/// Where a loader is: the epoch, and how much of it was handed out. Knows nothing of the data but how much there is.
class Schedule {
 public:
  /// Of a dataset with `size` samples. Throws ConfigError for options that cannot be.
  Schedule(std::int64_t size, const DataLoaderOptions& options, Team team, std::uint64_t seed);

  /// Of this rank in a whole epoch.
  std::int64_t batches() const;
  std::int64_t epoch() const;
  void set_epoch(std::int64_t epoch) { upcoming_ = epoch; }
  /// A new pass begins, where load_state() says or at the beginning of the next epoch.
  std::shared_ptr<const Pass> begin();
  /// One more batch was handed out; the pass has ended.
  void hand_out() { ++handed_; }
  void finish() { finished_ = true; }
  Value state() const;
  void load_state(const Value& state);

 private:
  Value resting(std::int64_t epoch) const;
  /// The order of an epoch where it is drawn as a whole.
  std::optional<std::vector<std::int64_t>> drawn(std::int64_t epoch) const;
  /// Differs where the order does. `drawn` is that of the epoch.
  std::string order_name(const std::optional<std::vector<std::int64_t>>& drawn) const;

  std::int64_t size_;   ///< of the dataset
  std::int64_t total_;  ///< of an epoch: another number only in an order of the user's own
  DataLoaderOptions options_;
  Team team_;
  std::uint64_t seed_;
  std::int64_t upcoming_ = 0;  ///< the epoch of the next pass
  std::shared_ptr<const Pass> pass_;
  std::int64_t handed_ = 0;
  bool finished_ = false;
  std::optional<Value> pending_;
};

/// As a worker: its place among all, and the seed that enable_reproducibility() was given.
Schedule make_schedule(std::optional<std::size_t> size, const DataLoaderOptions& options);

}  // namespace detail
}  // namespace lockstep::torch
