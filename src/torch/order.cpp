#include <lockstep/error.h>
#include <lockstep/torch/order.h>
#include <lockstep/torch/stream.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "data/order.h"
#include "torch/seed.h"

namespace lockstep::torch::detail {
namespace {

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

data::SampleOrder::Kind kind_of(const DataLoaderOptions& options) {
  using enum data::SampleOrder::Kind;
  if (!options.shuffle) return sequential;
  return options.as_in_python ? shuffled : permuted;
}

/// A name that differs between different orders. `drawn` is the user's own order of the epoch.
std::string order_name(const DataLoaderOptions& options, std::uint64_t seed,
                       const std::optional<std::vector<std::int64_t>>& drawn) {
  if (!drawn) return data::SampleOrder::name(kind_of(options), seed);
  std::uint64_t sum = 0;
  for (const std::int64_t sample : *drawn)
    sum = lockstep::detail::scrambled(sum + static_cast<std::uint64_t>(sample) + 1);
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(sum));
  return "own " + std::string(text);
}

data::Deal dealt(std::int64_t total, std::int64_t start, Team team, const DataLoaderOptions& options) {
  return {total, start, {team.rank, team.world, options.batch_size, data::Tail::pad, options.drop_last}};
}

}  // namespace

struct Pass::Plan {
  std::int64_t epoch;
  std::string order_name;
  data::SampleOrder order;
  data::Deal deal;
  data::Share share;
  std::int64_t batch_size;
};

Pass::Pass(std::unique_ptr<const Plan> plan) : plan_(std::move(plan)) {}
Pass::~Pass() = default;

std::int64_t Pass::batches() const { return plan_->deal.batches(); }

std::vector<std::size_t> Pass::samples(std::int64_t batch) const {
  const std::int64_t from = batch * plan_->batch_size, to = std::min(from + plan_->batch_size, plan_->share.size());
  std::vector<std::size_t> found;
  found.reserve(static_cast<std::size_t>(to - from));
  for (std::int64_t n = from; n < to; ++n)
    found.push_back(static_cast<std::size_t>(plan_->order(plan_->share.place(n))));
  return found;
}

Schedule::Schedule(std::int64_t size, const DataLoaderOptions& options, Team team, std::uint64_t seed)
    : size_(size), total_(size), options_(options), team_(team), seed_(seed) {
  check_counts(options);
  if (!options.order) return;
  if (options.shuffle) refuse("both shuffle and order are given; give one of them");
  total_ = static_cast<std::int64_t>(options.order(0).size());
}

std::int64_t Schedule::batches() const { return dealt(total_, 0, team_, options_).batches(); }

std::int64_t Schedule::epoch() const { return pass_ && !finished_ ? pass_->plan().epoch : upcoming_; }

std::shared_ptr<const Pass> Schedule::begin() {
  const bool resumed = pending_ && count_in(*pending_, "epoch") == upcoming_;
  const auto deal = dealt(total_, resumed ? count_in(*pending_, "samples") : 0, team_, options_);
  auto own = drawn(upcoming_);
  const std::string name = order_name(options_, seed_, own);
  auto order = own ? data::SampleOrder(std::move(*own))
                   : data::SampleOrder(kind_of(options_), size_, seed_, static_cast<std::uint64_t>(upcoming_));
  pass_ = std::make_shared<Pass>(std::make_unique<Pass::Plan>(
      Pass::Plan{upcoming_, name, std::move(order), deal, deal.share(), options_.batch_size}));
  ++upcoming_;
  pending_.reset();
  handed_ = 0;
  finished_ = false;
  return pass_;
}

Value Schedule::resting(std::int64_t epoch) const {
  return {{"kind", "samples"}, {"epoch", epoch}, {"samples", 0}, {"total", total_}};
}

std::optional<std::vector<std::int64_t>> Schedule::drawn(std::int64_t epoch) const {
  if (!options_.order) return std::nullopt;
  auto order = options_.order(epoch);
  if (static_cast<std::int64_t>(order.size()) != total_)
    refuse("the order of epoch " + std::to_string(epoch) + " has " + std::to_string(order.size()) +
           " samples, but that of epoch 0 has " + std::to_string(total_) + "; all must have the same number");
  for (const std::int64_t sample : order)
    if (sample < 0 || sample >= size_)
      refuse("the order of epoch " + std::to_string(epoch) + " has the sample " + std::to_string(sample) +
             ", but the dataset has " + std::to_string(size_) + ", from 0 on");
  return order;
}

Value Schedule::state() const {
  if (!pass_ || finished_) return pending_ && (*pending_)["epoch"] == upcoming_ ? *pending_ : resting(upcoming_);
  Value state = resting(pass_->plan().epoch);
  const std::int64_t done = pass_->plan().deal.position_after(handed_);
  state["samples"] = done;
  if (done > 0) state["order"] = pass_->plan().order_name;
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
  const std::string name = samples > 0 ? order_name(options_, seed_, drawn(epoch)) : "";
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
           std::to_string(this_worker().world) + "; continue with the same number, or save the state between epochs");
  return {count_in(state, "epoch"), batches};
}

Schedule make_schedule(std::optional<std::size_t> size, const DataLoaderOptions& options) {
  if (!size) refuse("the dataset has no size, so it cannot be divided among the workers; give its size() a value");
  return {static_cast<std::int64_t>(*size), options, this_worker(), options.seed.value_or(reproducible_seed())};
}

}  // namespace lockstep::torch::detail
