#pragma once

#include <cstddef>
#include <cstdint>
#include <lockstep/permutation.h>
#include <lockstep/value.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// The order of rows as a formula. A data set is a list of blocks, of which the order knows only the numbers of rows.
/// Nothing here reads data, and everything is the same on every machine.
namespace lockstep::data {

/// Places of an epoch, from `begin` to before `end`.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Neighbouring rows of one block.
struct Part {
  std::size_t block = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Part&) const = default;
};

struct OrderOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::int64_t window = 100'000;  ///< rows that are shuffled among each other
};

/// The order of one epoch. Shuffled: the blocks are permuted; their rows, one block after the other, are cut into
/// windows; and the rows of each window are permuted. Otherwise rows keep the order of the data set. Holds 8 bytes a
/// block; a lookup takes constant memory and time logarithmic in the number of blocks. Any thread may call.
class EpochOrder {
 public:
  /// Throws ConfigError if the window is smaller than 1.
  EpochOrder(std::span<const std::int64_t> rows_of_blocks, const OrderOptions& options, std::int64_t epoch);

  std::int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Places whose rows are read together, the ones around `place`: its window, or its block if nothing is shuffled.
  Range unit_at(std::int64_t place) const;
  /// What has to be read for a unit, in the order in which permuted() counts.
  std::vector<Part> parts_of(Range unit) const;
  /// For some places of a unit: which rows of its parts, put together, they hold. Many places at once are quicker.
  std::vector<std::int64_t> permuted(Range unit, std::span<const Range> places) const;
  /// The row at one place, as a part of one row.
  Part row(std::int64_t place) const;
  /// The blocks whose rows come next at `place`, in the order of this epoch, at most `count`.
  std::vector<std::size_t> next_blocks(std::int64_t place, std::size_t count) const;
  bool is_shuffled() const { return blocks_.has_value(); }

 private:
  std::size_t block(std::size_t nth) const;
  detail::Permutation permutation_of(Range unit) const;

  OrderOptions options_;
  std::uint64_t key_ = 0;
  std::vector<std::int64_t> ends_;  ///< of the blocks in the order of this epoch
  std::optional<detail::Permutation> blocks_;
};

/// A seed for generators of random numbers: 63 bits, because torch's may take no more. `part` tells those apart that
/// have the same seed in the same epoch.
std::uint64_t generator_seed(std::uint64_t seed, std::uint64_t epoch, std::optional<std::uint64_t> part = {});

/// The order of the samples of one epoch, for loaders that read samples one by one. Any thread may call.
class SampleOrder {
 public:
  enum class Kind {
    sequential,  ///< the data's own
    permuted,    ///< a permutation that is computed place by place, in constant memory
    shuffled     ///< the permutation of torch.randperm(), seeded by generator_seed(); takes 8 bytes a sample
  };
  SampleOrder(Kind kind, std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  /// One that somebody else has drawn; it may omit or repeat samples.
  explicit SampleOrder(std::vector<std::int64_t> drawn);

  /// The number of places.
  std::int64_t size() const { return size_; }
  /// The sample at a place, which is below the size.
  std::int64_t operator()(std::int64_t place) const;
  /// A name that differs between different orders, for states of loaders.
  static std::string name(Kind kind, std::uint64_t seed);

 private:
  std::int64_t size_;
  std::optional<detail::Permutation> permutation_;
  std::optional<std::vector<std::int64_t>> drawn_;  ///< if neither is set: the data's own
};

/// What happens to the last rows of an epoch, which do not fill a batch on every rank.
enum class Tail {
  pad,    ///< divided evenly; a rank that would get none repeats a row from the beginning: equally many batches
  drop,   ///< dropped: equally many batches, all of them full
  uneven  ///< dealt like the others: some ranks get a batch more, and one batch may be smaller
};

struct DealOptions {
  int rank = 0;
  int world = 1;
  std::int64_t batch_size = 1;  ///< of one rank
  Tail tail = Tail::pad;
  bool drop_last = false;  ///< drop a batch that is not full
};

/// The places that one rank takes if rows are dealt one at a time: first, first + step, ..., `count` of them. `extra`
/// is one more place, which another rank takes too.
struct Share {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
  std::optional<std::int64_t> extra{};

  std::int64_t size() const { return count + (extra ? 1 : 0); }
  std::int64_t place(std::int64_t n) const { return n < count ? first + n * step : *extra; }
};

/// The batches of one rank, from a position to the end of the epoch. Data sets deal whole batches in turn: with W
/// ranks, rank r gets the batches r, r + W, ... of the one global sequence. Loaders deal single rows in turn. The
/// number of batches and the position after each are the same for both.
class Deal {
 public:
  /// Throws ConfigError for impossible options.
  Deal(std::int64_t total, std::int64_t start, const DealOptions& options);

  std::int64_t total() const { return total_; }
  std::int64_t batches() const { return batches_; }
  /// The places of the n-th batch of this rank, if whole batches are dealt.
  Range batch(std::int64_t n) const;
  /// All places of this rank, if single rows are dealt. The tail must not be `uneven`.
  Share share() const;
  /// The global position when every rank has had n batches.
  std::int64_t position_after(std::int64_t n) const;

 private:
  /// The place that pads a rank if the last `rest` places are too few for all.
  std::int64_t padding(std::int64_t rest) const { return (options_.rank - rest) % total_; }

  std::int64_t total_;
  std::int64_t start_;
  DealOptions options_;
  std::int64_t rounds_ = 0;   ///< in which every rank gets a full batch
  std::int64_t batches_ = 0;  ///< of this rank
};

}  // namespace lockstep::data
