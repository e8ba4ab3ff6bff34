#include <lockstep/data.h>
#include <lockstep/error.h>

#include <algorithm>
#include <mutex>

#include "base/text.h"
#include "data/iterator.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

std::shared_ptr<data::Source> open_plan(const Value& plan) {
  const std::string kind = plan.at("read");
  if (kind == "range") return data::open_range(plan.at("count"));
  const Names paths = plan.at("paths");
  if (kind == "parquet") return data::open_parquet(paths);
  if (kind == "json") return data::open_json(paths, {});
  if (kind == "csv") {
    data::CsvOptions options;
    options.delimiter = plan.at("delimiter").get<std::string>().at(0);
    options.column_names = plan.at("column_names").get<Names>();
    return data::open_csv(paths, options);
  }
  if (kind == "text") {
    data::TextOptions options;
    options.drop_empty_lines = plan.at("drop_empty_lines");
    return data::open_text(paths, options);
  }
  throw InternalError("[data] a plan reads " + in_quotes(kind));
}

data::Dataset dataset_of(const Value& plan) {
  data::Dataset dataset(open_plan(plan));
  for (const Value& step : plan.at("steps")) {
    if (step.contains("limit")) dataset = dataset.limit(step.at("limit"));
    if (step.contains("select_columns")) dataset = dataset.select_columns(step.at("select_columns"));
  }
  return dataset;
}

data::IteratorOptions options_of(const Value& config, const std::string& name, const Session& session) {
  const auto has = [&](const char* list) {
    const Names names = config.at(list);
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  data::IteratorOptions options;
  options.order = {.shuffle = has("datasets_to_shuffle"), .seed = config.at("seed"), .window = config.at("window")};
  if (has("datasets_to_split")) {
    options.rank = session.world_rank();
    options.world = session.world_size();
  }
  const std::string equal = config.at("equal");
  options.tail = equal == "pad" ? data::Tail::pad : equal == "drop" ? data::Tail::drop : data::Tail::uneven;
  options.prefetch = config.at("prefetch");
  return options;
}

}  // namespace

struct DatasetShard::State {
  State(data::Dataset dataset, const data::IteratorOptions& options) : iterator(std::move(dataset), options) {}

  std::mutex mutex;  ///< report() may ask for the position in another thread
  data::Iterator iterator;
};

struct DatasetShard::Loop::Pass {
  std::shared_ptr<State> state;
  std::shared_ptr<data::Pass> pass;
};

DatasetShard::Loop::Loop(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) {}
DatasetShard::Loop::Loop(Loop&&) noexcept = default;
DatasetShard::Loop& DatasetShard::Loop::operator=(Loop&&) noexcept = default;
DatasetShard::Loop::~Loop() = default;

DatasetShard::Loop::Iterator& DatasetShard::Loop::Iterator::operator++() {
  auto& [state, pass] = *loop_->pass_;
  batch_ = pass->next();  // not under the mutex, as it may wait for files
  const std::lock_guard lock(state->mutex);
  if (batch_)
    state->iterator.move(*pass, pass->given());
  else
    state->iterator.finish(*pass);
  return *this;
}

DatasetShard::Loop DatasetShard::batches(std::int64_t batch_size, bool drop_last) {
  const std::lock_guard lock(state_->mutex);
  return Loop(std::make_unique<Loop::Pass>(Loop::Pass{state_, state_->iterator.begin(batch_size, drop_last)}));
}

std::int64_t DatasetShard::count() const { return state_->iterator.dataset().count(); }

std::shared_ptr<arrow::Schema> DatasetShard::schema() const { return state_->iterator.dataset().schema(); }

std::int64_t DatasetShard::epoch() const {
  const std::lock_guard lock(state_->mutex);
  return state_->iterator.cursor().epoch();
}

void DatasetShard::set_epoch(std::int64_t epoch) {
  const std::lock_guard lock(state_->mutex);
  state_->iterator.cursor().set_epoch(epoch);
}

Value DatasetShard::state() const {
  const std::lock_guard lock(state_->mutex);
  return state_->iterator.cursor().state();
}

void DatasetShard::load_state(const Value& state) {
  const std::lock_guard lock(state_->mutex);
  state_->iterator.cursor().load_state(state);
}

DatasetShard Session::dataset_shard(const std::string& name) {
  const Value& run = data_plan();
  const Value plans = run.value("datasets", Value::object());
  Names names;
  for (const auto& [known, plan] : plans.items()) names.push_back(known);
  if (names.empty())
    throw ConfigError("[session] dataset_shard() found no data sets; give them to the trainer: trainer.datasets(...)");
  if (!plans.contains(name))
    throw ConfigError("[session] dataset_shard() got " + in_quotes(name) + ", but the data sets are " +
                      joined(closest_first(names, name), ", "));
  if (auto known = shards_.find(name); known != shards_.end())
    return DatasetShard(std::static_pointer_cast<DatasetShard::State>(known->second));
  const Value& config = run.at("config");
  const auto state = std::make_shared<DatasetShard::State>(dataset_of(plans.at(name)), options_of(config, name, *this));
  DatasetShard shard(state);
  if (const auto saved = saved_position(name); saved && config.at("resume").get<bool>()) shard.load_state(*saved);
  keep_position(name, [shard] { return shard.state(); });
  shards_[name] = state;
  return shard;
}

}  // namespace lockstep
