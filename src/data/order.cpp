#include "data/order.h"

#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>

namespace lockstep::data {
namespace {

[[noreturn]] void refuse_order(const std::string& name, std::int64_t value, const char* what) {
  throw ConfigError("[data] " + name + " is " + std::to_string(value) + "; it must be " + what);
}

/// Equal to torch.randperm(size) with a CPU generator of this seed, of which it uses 32 bits. Written out here so that
/// programs without LibTorch have it, and so that an order stays what it is in later releases of torch.
std::vector<std::int64_t> order_of_torch(std::int64_t size, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  const std::uint64_t count = order.size();
  if (count < UINT32_MAX / 20) {
    std::iota(order.begin(), order.end(), 0);
    for (std::uint64_t at = 0; at + 1 < count; ++at) std::swap(order[at], order[at + random() % (count - at)]);
    return order;
  }
  for (std::uint64_t at = 0; at < count; ++at) {  // 32 random bits are too few for a fair choice among so many
    const std::uint64_t high = random(), low = random(), from = (high << 32 | low) % (at + 1);
    order[at] = order[from];
    order[from] = static_cast<std::int64_t>(at);
  }
  return order;
}

}  // namespace

std::uint64_t generator_seed(std::uint64_t seed, std::uint64_t epoch, std::optional<std::uint64_t> part) {
  return (part ? detail::mixed(seed, epoch, *part) : detail::mixed(seed, epoch)) >> 1;
}

EpochOrder::EpochOrder(std::span<const std::int64_t> rows_of_blocks, const OrderOptions& options, std::int64_t epoch)
    : options_(options), key_(detail::mixed(options.seed, static_cast<std::uint64_t>(epoch))) {
  if (options.window < 1) refuse_order("window", options.window, "1 or more");
  if (options.shuffle && !rows_of_blocks.empty()) blocks_.emplace(rows_of_blocks.size(), detail::mixed(key_, 0));
  ends_.reserve(rows_of_blocks.size());
  std::int64_t end = 0;
  for (std::size_t nth = 0; nth < rows_of_blocks.size(); ++nth) ends_.push_back(end += rows_of_blocks[block(nth)]);
}

std::size_t EpochOrder::block(std::size_t nth) const {
  return blocks_ ? static_cast<std::size_t>((*blocks_)(nth)) : nth;
}

Range EpochOrder::unit_at(std::int64_t place) const {
  if (is_shuffled()) {
    const std::int64_t begin = place / options_.window * options_.window;
    return {begin, std::min(begin + options_.window, total())};
  }
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), place);
  return {found == ends_.begin() ? 0 : *(found - 1), *found};
}

std::vector<Part> EpochOrder::parts_of(Range unit) const {
  std::vector<Part> parts;
  auto nth = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), unit.begin) - ends_.begin());
  for (std::int64_t at = unit.begin; at < unit.end; ++nth) {
    const std::int64_t begin = nth == 0 ? 0 : ends_[nth - 1];
    const std::int64_t count = std::min(ends_[nth], unit.end) - at;
    if (count > 0) parts.push_back({block(nth), at - begin, count});
    at += count;
  }
  return parts;
}

detail::Permutation EpochOrder::permutation_of(Range unit) const {
  const auto number = static_cast<std::uint64_t>(unit.begin / options_.window);
  return {static_cast<std::uint64_t>(unit.size()), detail::mixed(key_, number + 1)};
}

std::vector<std::int64_t> EpochOrder::permuted(Range unit, std::span<const Range> places) const {
  std::int64_t count = 0;
  for (const Range& range : places) count += range.size();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  auto next = rows.begin();
  for (const Range& range : places)
    for (std::int64_t place = range.begin; place < range.end; ++place) *next++ = place - unit.begin;
  if (is_shuffled()) permutation_of(unit).replace(rows);
  return rows;
}

std::vector<std::size_t> EpochOrder::next_blocks(std::int64_t place, std::size_t count) const {
  auto nth = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
  std::vector<std::size_t> blocks;
  for (; nth < ends_.size() && blocks.size() < count; ++nth) blocks.push_back(block(nth));
  return blocks;
}

Part EpochOrder::row(std::int64_t place) const {
  const Range unit = unit_at(place);
  const std::int64_t at = unit.begin + permuted(unit, std::array{Range{place, place + 1}}).front();
  return parts_of({at, at + 1}).front();
}

SampleOrder::SampleOrder(Kind kind, std::int64_t size, std::uint64_t seed, std::uint64_t epoch) : size_(size) {
  if (kind == Kind::permuted && size > 0)
    permutation_.emplace(static_cast<std::uint64_t>(size), detail::mixed(seed, epoch));
  if (kind == Kind::shuffled) drawn_ = order_of_torch(size, generator_seed(seed, epoch));
}

SampleOrder::SampleOrder(std::vector<std::int64_t> drawn)
    : size_(static_cast<std::int64_t>(drawn.size())), drawn_(std::move(drawn)) {}

std::int64_t SampleOrder::operator()(std::int64_t place) const {
  if (drawn_) return (*drawn_)[static_cast<std::size_t>(place)];
  return permutation_ ? static_cast<std::int64_t>((*permutation_)(static_cast<std::uint64_t>(place))) : place;
}

std::string SampleOrder::name(Kind kind, std::uint64_t seed) {
  if (kind == Kind::sequential) return "sequential";
  return (kind == Kind::shuffled ? "shuffled, seed " : "permuted, seed ") + std::to_string(seed);
}

Deal::Deal(std::int64_t total, std::int64_t start, const DealOptions& options)
    : total_(total), start_(std::min(start, total)), options_(options) {
  if (options.batch_size < 1) refuse_order("batch_size", options.batch_size, "1 or more");
  if (options.world < 1) refuse_order("world_size", options.world, "1 or more");
  if (options.rank < 0 || options.rank >= options.world)
    refuse_order("rank", options.rank, ("from 0 to " + std::to_string(options.world - 1)).c_str());
  const std::int64_t left = total_ - start_;
  const std::int64_t size = options_.batch_size = std::min(options.batch_size, left + 1);  // products stay small
  rounds_ = left / (options.world * size);
  batches_ = rounds_;
  const std::int64_t rest = left % (options.world * size);
  if (options.tail == Tail::uneven) {
    const std::int64_t more = options.drop_last ? rest / size : (rest + size - 1) / size;
    if (options.rank < more) ++batches_;
  } else if (options.tail == Tail::pad && !options.drop_last && rest > 0) {
    ++batches_;
  }
}

Range Deal::batch(std::int64_t n) const {
  const std::int64_t round = start_ + n * options_.world * options_.batch_size;
  const std::int64_t begin = round + options_.rank * options_.batch_size;
  if (n < rounds_ || options_.tail == Tail::uneven) return {begin, std::min(begin + options_.batch_size, total_)};
  // The first ranks get one row more than the others.
  const std::int64_t rest = total_ - round, each = rest / options_.world, more = rest % options_.world;
  const std::int64_t first = round + options_.rank * each + std::min<std::int64_t>(options_.rank, more);
  const std::int64_t count = each + (options_.rank < more ? 1 : 0);
  if (count > 0) return {first, first + count};
  return {padding(rest), padding(rest) + 1};
}

Share Deal::share() const {
  if (options_.tail == Tail::uneven) throw InternalError("[data] single rows are dealt evenly, but the tail is uneven");
  Share mine{start_ + options_.rank, options_.world, rounds_ * options_.batch_size, {}};
  if (batches_ == rounds_) return mine;  // there is no rest, or it is dropped
  const std::int64_t rest = total_ - start_ - mine.count * options_.world;
  if (options_.rank < rest)
    mine.count += (rest - options_.rank + options_.world - 1) / options_.world;
  else
    mine.extra = padding(rest);
  return mine;
}

std::int64_t Deal::position_after(std::int64_t n) const {
  return n >= batches_ ? total_ : start_ + n * options_.world * options_.batch_size;
}

}  // namespace lockstep::data
