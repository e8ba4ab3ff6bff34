#include <lockstep/error.h>
#include <lockstep/torch/order.h>
#include <lockstep/torch/stream.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "torch/seed.h"

namespace lockstep::torch::detail {
namespace {

/// Every bit of the result depends on every bit of `value`.
std::uint64_t scrambled(std::uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9;
  value ^= value >> 27;
  value *= 0x94d049bb133111eb;
  return value ^ value >> 31;
}

/// Smaller networks have too few permutations to choose from.
constexpr int kLeastBits = 8;

[[noreturn]] void refuse(const std::string& what) { throw ConfigError("[prepare_data_loader] " + what); }

std::int64_t count_in(const Value& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end() || !found->is_number_integer() || found->get<std::int64_t>() < 0)
    refuse("load_state() got " + std::string(key) + "=" + (found == state.end() ? "nothing" : found->dump()) +
           "; it must be a whole number of at least 0, as state() gives it");
  return found->get<std::int64_t>();
}

void check_counts(const DataLoaderOptions& options) {
  if (options.batch_size < 1) refuse("batch_size is " + std::to_string(options.batch_size) + "; it must be 1 or more");
  if (options.num_threads < 0)
    refuse("num_threads is " + std::to_string(options.num_threads) + "; it must be 0 or more");
  if (options.prefetch < 1) refuse("prefetch is " + std::to_string(options.prefetch) + "; it must be 1 or more");
}

/// What Python's prepare_data_loader() draws for a DataLoader with shuffle=True.
std::vector<std::int64_t> order_of_python(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  const auto key = mixed(seed, static_cast<std::uint64_t>(epoch)) >> 1;
  const auto order = ::torch::randperm(size, at::detail::createCPUGenerator(key), ::torch::kInt64);
  return {order.const_data_ptr<std::int64_t>(), order.const_data_ptr<std::int64_t>() + size};
}

}  // namespace

std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch) {
  return scrambled(scrambled(seed + 0x9e3779b97f4a7c15) + epoch * 0xd1342543de82ef95 + 1);
}

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size) {
  bits_ = std::max(kLeastBits, size > 1 ? static_cast<int>(std::bit_width(size - 1)) : 1);
  for (auto& round : keys_) round = key = scrambled(key + 0x9e3779b97f4a7c15);
}

std::uint64_t Permutation::encrypted(std::uint64_t value) const {
  // With an odd number of bits the halves differ by one, and change places with their sizes.
  int left_bits = bits_ / 2, right_bits = bits_ - left_bits;
  std::uint64_t left = value >> right_bits, right = value & ((std::uint64_t{1} << right_bits) - 1);
  for (const std::uint64_t key : keys_) {
    const std::uint64_t next = left ^ (scrambled(right + key) & ((std::uint64_t{1} << left_bits) - 1));
    left = std::exchange(right, next);
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

std::uint64_t Permutation::operator()(std::uint64_t place) const {
  do place = encrypted(place);
  while (place >= size_);
  return place;
}

Share share(std::int64_t total, std::int64_t start, Team team, std::int64_t batch_size, bool drop_last) {
  const std::int64_t left = std::max<std::int64_t>(total - start, 0);
  Share mine{start + team.rank, team.world, 0, {}};
  if (drop_last) {
    mine.count = left / (team.world * batch_size) * batch_size;
    return mine;
  }
  mine.count = std::max<std::int64_t>((left - team.rank + team.world - 1) / team.world, 0);
  const std::int64_t most = (left + team.world - 1) / team.world;
  if (mine.count < most && (most - 1) % batch_size == 0)
    mine.extra = (start + team.rank + mine.count * team.world - total) % total;
  return mine;
}

std::vector<std::size_t> Pass::samples(std::int64_t batch) const {
  const std::int64_t from = batch * batch_size_, to = std::min(from + batch_size_, share_.size());
  std::vector<std::size_t> found;
  found.reserve(static_cast<std::size_t>(to - from));
  for (std::int64_t n = from; n < to; ++n) {
    const auto place = static_cast<std::uint64_t>(share_.place(n));
    if (order_)
      found.push_back(static_cast<std::size_t>((*order_)[place]));
    else
      found.push_back(static_cast<std::size_t>(permutation_ ? (*permutation_)(place) : place));
  }
  return found;
}

Schedule::Schedule(std::int64_t size, const DataLoaderOptions& options, Team team, std::uint64_t seed)
    : size_(size), total_(size), options_(options), team_(team), seed_(seed) {
  check_counts(options);
  if (!options.order) return;
  if (options.shuffle) refuse("there are both shuffle and an order of your own; give one of them");
  total_ = static_cast<std::int64_t>(options.order(0).size());
}

std::int64_t Schedule::batches() const {
  const auto mine = share(total_, 0, team_, options_.batch_size, options_.drop_last).size();
  return (mine + options_.batch_size - 1) / options_.batch_size;
}

std::int64_t Schedule::epoch() const { return pass_ && !finished_ ? pass_->epoch() : upcoming_; }

std::shared_ptr<const Pass> Schedule::begin() {
  auto pass = std::make_shared<Pass>();
  pass->epoch_ = upcoming_;
  if (pending_ && count_in(*pending_, "epoch") == upcoming_) pass->start_ = count_in(*pending_, "samples");
  pass->batch_size_ = options_.batch_size;
  pass->share_ = share(total_, pass->start_, team_, options_.batch_size, options_.drop_last);
  pass->batches_ = (pass->share_.size() + options_.batch_size - 1) / options_.batch_size;
  pass->order_ = drawn(upcoming_);
  pass->order_name_ = order_name(pass->order_);
  if (options_.shuffle && !pass->order_)
    pass->permutation_.emplace(static_cast<std::uint64_t>(total_), mixed(seed_, static_cast<std::uint64_t>(upcoming_)));
  ++upcoming_;
  pending_.reset();
  handed_ = 0;
  finished_ = false;
  pass_ = pass;
  return pass;
}

Value Schedule::resting(std::int64_t epoch) const {
  return {{"kind", "samples"}, {"epoch", epoch}, {"samples", 0}, {"total", total_}};
}

std::optional<std::vector<std::int64_t>> Schedule::drawn(std::int64_t epoch) const {
  if (options_.shuffle && options_.as_in_python) return order_of_python(size_, seed_, epoch);
  if (!options_.order) return std::nullopt;
  auto order = options_.order(epoch);
  if (static_cast<std::int64_t>(order.size()) != total_)
    refuse("the order of epoch " + std::to_string(epoch) + " has " + std::to_string(order.size()) +
           " samples, but that of epoch 0 has " + std::to_string(total_) + "; all must have equally many");
  for (const std::int64_t sample : order)
    if (sample < 0 || sample >= size_)
      refuse("the order of epoch " + std::to_string(epoch) + " has the sample " + std::to_string(sample) +
             ", but the dataset has " + std::to_string(size_) + ", from 0 on");
  return order;
}

std::string Schedule::order_name(const std::optional<std::vector<std::int64_t>>& drawn) const {
  if (options_.shuffle) return (options_.as_in_python ? "shuffled, seed " : "permuted, seed ") + std::to_string(seed_);
  if (!drawn) return "sequential";
  std::uint64_t sum = 0;
  for (const std::int64_t sample : *drawn) sum = scrambled(sum + static_cast<std::uint64_t>(sample) + 1);
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(sum));
  return "own " + std::string(text);
}

Value Schedule::state() const {
  if (!pass_ || finished_) return pending_ && (*pending_)["epoch"] == upcoming_ ? *pending_ : resting(upcoming_);
  Value state = resting(pass_->epoch());
  const std::int64_t done =
      handed_ == pass_->batches() ? total_ : pass_->start_ + handed_ * team_.world * options_.batch_size;
  state["samples"] = done;
  if (done > 0) state["order"] = pass_->order_name_;
  return state;
}

void Schedule::load_state(const Value& state) {
  if (!state.is_object() || state.value("kind", Value()) != "samples")
    refuse("load_state() got " + state.dump().substr(0, 200) + "; it must be what state() of such a loader gave");
  const std::int64_t epoch = count_in(state, "epoch"), samples = count_in(state, "samples");
  const std::int64_t total = count_in(state, "total");
  if (total != total_ || samples > total_)
    refuse("load_state() got the state of a loader with " + std::to_string(total) + " samples, " +
           std::to_string(samples) + " of them done, but this one has " + std::to_string(total_) +
           "; give it the data that the state was taken with");
  const std::string name = samples > 0 ? order_name(options_.order ? drawn(epoch) : std::nullopt) : "";
  if (samples > 0 && state.value("order", Value()) != name)
    refuse("load_state() got a position in the order " + state.value("order", Value()).dump() +
           ", but this loader's is \"" + name + "\"; use the options that the state was taken with");
  pending_ = state;
  pass_.reset();
  upcoming_ = epoch;
}

void check_stream_options(const DataLoaderOptions& options) {
  check_counts(options);
  if (options.shuffle || options.order || options.drop_last)
    refuse("a stream has an order and an end of its own; leave out shuffle, order and drop_last");
}

Value stream_state(std::int64_t epoch, std::int64_t batches) {
  return {{"kind", "stream"}, {"epoch", epoch}, {"batches", batches}, {"world_size", this_worker().world}};
}

std::pair<std::int64_t, std::int64_t> stream_position(const Value& state) {
  if (!state.is_object() || state.value("kind", Value()) != "stream")
    refuse("load_state() got " + state.dump().substr(0, 200) + "; it must be what state() of such a loader gave");
  const auto world = count_in(state, "world_size"), batches = count_in(state, "batches");
  if (batches > 0 && world != this_worker().world)
    refuse("load_state() got a position in the streams of " + std::to_string(world) + " workers, but there are " +
           std::to_string(this_worker().world) + "; go on with as many, or save the state between epochs");
  return {count_in(state, "epoch"), batches};
}

Schedule make_schedule(std::optional<std::size_t> size, const DataLoaderOptions& options) {
  if (!size) refuse("the dataset has no size, so it cannot be divided among the workers; give its size() a value");
  return {static_cast<std::int64_t>(*size), options, this_worker(), options.seed.value_or(reproducible_seed())};
}

}  // namespace lockstep::torch::detail
