#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "runs.h"

namespace lockstep::torch {
namespace {

using detail::Schedule;
using detail::Team;

std::vector<std::int64_t> samples_of(Schedule& schedule, std::int64_t batches = -1) {
  const auto pass = schedule.begin();
  std::vector<std::int64_t> found;
  for (std::int64_t batch = 0; batch < pass->batches() && batch != batches; ++batch) {
    schedule.hand_out();
    for (const auto sample : pass->samples(batch)) found.push_back(static_cast<std::int64_t>(sample));
  }
  return found;
}

TEST(Schedule, GivesEverySampleOnceAndEquallyManyBatches) {
  for (const int total : {0, 1, 2, 7, 10, 16, 37})
    for (const int world : {1, 2, 3, 4})
      for (const int batch_size : {1, 2, 3, 5})
        for (const bool drop_last : {false, true}) {
          std::map<std::int64_t, int> counts;
          std::set<std::int64_t> batches;
          std::size_t given = 0;
          for (int rank = 0; rank < world; ++rank) {
            Schedule schedule(total, {.batch_size = batch_size, .shuffle = true, .drop_last = drop_last}, {rank, world},
                              1);
            batches.insert(schedule.batches());
            const auto mine = samples_of(schedule);
            given += mine.size();
            for (const auto sample : mine) ++counts[sample];
          }
          SCOPED_TRACE(testing::Message() << total << " samples, " << world << " ranks, batches of " << batch_size
                                          << (drop_last ? ", drop_last" : ""));
          EXPECT_EQ(batches.size(), 1u);
          if (drop_last) {
            EXPECT_EQ(given, static_cast<std::size_t>(total / (world * batch_size) * world * batch_size));
            for (const auto& [sample, count] : counts) EXPECT_EQ(count, 1);
          } else {
            EXPECT_EQ(counts.size(), static_cast<std::size_t>(total));
            EXPECT_LT(given, static_cast<std::size_t>(total + world));
          }
        }
}

TEST(Schedule, GoesOnInTheMiddleOnAnotherNumberOfRanks) {
  const DataLoaderOptions options{.batch_size = 3, .shuffle = true};
  std::vector<std::int64_t> seen;
  Value state;
  for (int rank = 0; rank < 4; ++rank) {
    Schedule before(50, options, {rank, 4}, 5);
    samples_of(before);  // epoch 0
    before.finish();
    const auto mine = samples_of(before, 2);
    seen.insert(seen.end(), mine.begin(), mine.end());
    EXPECT_TRUE(rank == 0 || before.state() == state);
    state = before.state();
  }
  EXPECT_EQ(state,
            (Value{{"kind", "samples"}, {"epoch", 1}, {"samples", 24}, {"total", 50}, {"order", "permuted, seed 5"}}));
  for (int rank = 0; rank < 2; ++rank) {
    Schedule after(50, {.batch_size = 5, .shuffle = true}, {rank, 2}, 5);
    after.load_state(state);
    EXPECT_EQ(after.state(), state);
    EXPECT_EQ(after.epoch(), 1);
    const auto mine = samples_of(after);
    seen.insert(seen.end(), mine.begin(), mine.end());
    EXPECT_EQ(after.state()["samples"], 50);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<std::int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all) << "each sample of the epoch once";
}

TEST(Schedule, EachPassHasTheNextEpoch) {
  Schedule schedule(20, {.batch_size = 4, .shuffle = true}, {0, 1}, 0);
  const auto first = samples_of(schedule);
  EXPECT_EQ(schedule.epoch(), 0) << "the pass has not ended";
  schedule.finish();
  EXPECT_EQ(schedule.epoch(), 1);
  EXPECT_EQ(schedule.state(), (Value{{"kind", "samples"}, {"epoch", 1}, {"samples", 0}, {"total", 20}}));
  EXPECT_NE(samples_of(schedule), first);
  schedule.set_epoch(0);
  EXPECT_EQ(samples_of(schedule), first);
}

TEST(Schedule, RefusesAStateThatIsNotItsOwn) {
  Schedule schedule(20, {.batch_size = 4, .shuffle = true}, {0, 1}, 0);
  const Value good{{"kind", "samples"}, {"epoch", 1}, {"samples", 4}, {"total", 20}, {"order", "permuted, seed 0"}};
  schedule.load_state(good);
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Value>>{{"kind", "stream"},
                                                                                       {"epoch", -1},
                                                                                       {"samples", 21},
                                                                                       {"samples", "4"},
                                                                                       {"total", 21},
                                                                                       {"order", "sequential"}}) {
    Value bad = good;
    bad[key] = value;
    EXPECT_THROW(schedule.load_state(bad), ConfigError) << bad;
    EXPECT_EQ(schedule.state(), good) << "it is as before";
  }
  EXPECT_THROW(schedule.load_state(Value::array()), ConfigError);
}

// python/tests/torch/test_loader.py has the same numbers.
TEST(Schedule, CanHaveTheOrderOfPython) {
  const DataLoaderOptions options{.batch_size = 10, .shuffle = true, .as_in_python = true};
  Schedule schedule(10, options, {0, 1}, 0);
  EXPECT_EQ(samples_of(schedule), (std::vector<std::int64_t>{2, 0, 1, 3, 8, 4, 5, 6, 7, 9}));
  EXPECT_EQ(schedule.state()["order"], "shuffled, seed 0") << "a state that Python takes";
  Schedule other(10, options, {0, 1}, 7);
  other.set_epoch(3);
  EXPECT_EQ(samples_of(other), (std::vector<std::int64_t>{8, 4, 7, 1, 0, 6, 9, 5, 2, 3}));
}

TEST(Schedule, CanHaveAnOrderOfTheUsersOwn) {
  // Ten samples of four, those of epoch 1 backwards.
  const auto order = [](std::int64_t epoch) {
    std::vector<std::int64_t> samples{0, 1, 1, 2, 2, 2, 3, 3, 3, 3};
    if (epoch == 1) std::reverse(samples.begin(), samples.end());
    return samples;
  };
  const DataLoaderOptions options{.batch_size = 2, .order = order};
  Schedule one(4, options, {0, 2}, 0), two(4, options, {1, 2}, 0);
  EXPECT_EQ(one.batches(), 3);
  EXPECT_EQ(samples_of(one), (std::vector<std::int64_t>{0, 1, 2, 3, 3}));
  EXPECT_EQ(samples_of(two), (std::vector<std::int64_t>{1, 2, 2, 3, 3}));
  one.finish();
  EXPECT_EQ(samples_of(one, 1), (std::vector<std::int64_t>{3, 3}));
  const Value state = one.state();
  EXPECT_EQ(state["samples"], 4);
  Schedule rest(4, options, {0, 1}, 0);
  rest.load_state(state);
  EXPECT_EQ(samples_of(rest), (std::vector<std::int64_t>{2, 2, 2, 1, 1, 0}));
  Schedule another(4, {.batch_size = 2, .order = [&](std::int64_t) { return order(0); }}, {0, 1}, 0);
  EXPECT_THROW(another.load_state(state), ConfigError) << "its order of epoch 1 is another";

  EXPECT_THROW(Schedule(4, {.shuffle = true, .order = order}, {0, 1}, 0), ConfigError);
  EXPECT_THROW(Schedule(3, {.order = order}, {0, 1}, 0).begin(), ConfigError) << "there is no sample 3";
  const auto growing = [](std::int64_t epoch) { return std::vector<std::int64_t>(static_cast<std::size_t>(epoch)); };
  Schedule changing(3, {.order = growing}, {0, 1}, 0);
  changing.set_epoch(1);
  EXPECT_THROW(changing.begin(), ConfigError);
}

TEST(DataLoader, RefusesOptionsThatCannotBe) {
  const std::vector<int> numbers(4);
  EXPECT_THROW(prepare_data_loader(numbers, {.batch_size = 0}), ConfigError);
  EXPECT_THROW(prepare_data_loader(numbers, {.num_threads = -1}), ConfigError);
  EXPECT_THROW(prepare_data_loader(numbers, {.prefetch = 0}), ConfigError);
}

/// A dataset of LibTorch's: sample i is [i, 10 i] with the target i.
struct Numbers : ::torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(std::size_t count) : count_(count) {}
  ::torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {::torch::tensor({i, 10 * i}), ::torch::tensor(i)};
  }
  std::optional<std::size_t> size() const override { return count_; }
  std::size_t count_;
};

TEST(DataLoader, StacksTheExamplesOfADataset) {
  auto loader = prepare_data_loader(Numbers(5), {.batch_size = 2});
  EXPECT_EQ(loader.size(), 3u);
  std::vector<std::int64_t> targets;
  for (auto& batch : loader) {
    EXPECT_TRUE(batch.data.select(1, 1).equal(batch.target * 10));
    for (std::int64_t i = 0; i < batch.target.size(0); ++i) targets.push_back(batch.target[i].item<std::int64_t>());
  }
  EXPECT_EQ(targets, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(DataLoader, TakesWhatADatasetHasStackedItself) {
  auto loader = prepare_data_loader(Numbers(4).map(::torch::data::transforms::Stack<>()), {.batch_size = 4});
  EXPECT_EQ(loader.begin()->data.sizes(), (std::vector<std::int64_t>{4, 2}));
}

TEST(DataLoader, TakesPlainContainers) {
  auto numbers = prepare_data_loader(std::vector<double>{1, 2, 3}, {.batch_size = 3});
  EXPECT_TRUE(numbers.begin()->equal(::torch::tensor({1., 2., 3.}, ::torch::kFloat64)));
  auto words = prepare_data_loader(std::vector<std::string>{"a", "b"}, {.batch_size = 2});
  EXPECT_EQ(*words.begin(), (std::vector<std::string>{"a", "b"}));
  std::vector<std::pair<::torch::Tensor, std::int64_t>> pairs{{::torch::ones({2}), 3}, {::torch::zeros({2}), 4}};
  auto loader = prepare_data_loader(pairs, {.batch_size = 2});
  const auto& [inputs, labels] = *loader.begin();
  EXPECT_EQ(inputs.sizes(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_TRUE(labels.equal(::torch::tensor({3, 4}, ::torch::kInt64)));
}

TEST(DataLoader, MakesWholeNumbersInt64AsPythonDoes) {
  std::vector<std::pair<::torch::Tensor, int>> labelled{{::torch::ones({2}), 3}, {::torch::zeros({2}), 4}};
  auto loader = prepare_data_loader(labelled, {.batch_size = 2});
  EXPECT_TRUE(loader.begin()->second.equal(::torch::tensor({3, 4}, ::torch::kInt64)));
  using Sample = std::tuple<long long, char, unsigned, bool, std::uint8_t, float, std::vector<bool>, std::string>;
  auto mixed = prepare_data_loader(std::vector<Sample>{{-1, 'a', 2u, true, 255, 0.5f, {true, false}, "x"}});
  const auto& [a, b, c, d, e, f, flags, text] = *mixed.begin();
  for (const auto& number : {a, b, c}) EXPECT_EQ(number.scalar_type(), ::torch::kInt64);
  EXPECT_EQ(a.item<std::int64_t>(), -1);
  EXPECT_EQ(b.item<std::int64_t>(), 'a');
  EXPECT_EQ(d.scalar_type(), ::torch::kBool);
  EXPECT_EQ(e.scalar_type(), ::torch::kUInt8);
  EXPECT_EQ(f.scalar_type(), ::torch::kFloat32);
  EXPECT_EQ(flags, (std::vector<std::vector<bool>>{{true, false}}));
  EXPECT_EQ(text.front(), "x");
  EXPECT_TRUE(prepare_data_loader(std::vector<bool>{true, false}).begin()->item<bool>());
}

TEST(DataLoader, TakesTheRowsOfATensor) {
  auto loader = prepare_data_loader(::torch::arange(10).reshape({5, 2}), {.batch_size = 2});
  EXPECT_EQ(loader.size(), 3u);
  EXPECT_TRUE(loader.begin()->equal(::torch::arange(4).reshape({2, 2})));
  EXPECT_THROW(prepare_data_loader(::torch::tensor(1)), ConfigError) << "it has no rows";
}

TEST(DataLoader, TakesDataThatIsShared) {
  const auto numbers = std::make_shared<std::vector<int>>(std::vector<int>{5, 6});
  auto loader = prepare_data_loader(numbers, {.batch_size = 2});
  (*numbers)[0] = 7;
  EXPECT_TRUE(loader.begin()->equal(::torch::tensor({7, 6}, ::torch::kInt64))) << "it is not copied";
  auto constant = prepare_data_loader(std::shared_ptr<const std::vector<int>>(numbers));
  EXPECT_EQ(constant.size(), 2u);
  auto dataset = prepare_data_loader(std::make_shared<Numbers>(3), {.batch_size = 3});
  EXPECT_TRUE(dataset.begin()->target.equal(::torch::arange(3)));
}

TEST(DataLoader, HasTheNamesOfOtherLoaders) {
  auto loader = prepare_data_loader(Numbers(4), {.batch_size = 2});
  int handed = 0;
  for (auto& batch : *loader) handed += static_cast<int>(batch.target.size(0));
  const auto& constant = loader;
  for (auto& batch : constant) handed += static_cast<int>(batch.target.size(0));
  EXPECT_EQ(handed, 8);
  auto other = prepare_data_loader(Numbers(4), {.batch_size = 2});
  other.load_state_dict(loader.state_dict());
  EXPECT_EQ(other.epoch(), 2);
}

/// The numbers from 0 on, until it is reset.
struct Counting : ::torch::data::datasets::StatefulDataset<Counting, std::vector<::torch::Tensor>> {
  explicit Counting(std::int64_t count) : count_(count) {}
  std::optional<std::vector<::torch::Tensor>> get_batch(std::size_t size) override {
    std::vector<::torch::Tensor> batch;
    while (next_ < count_ && batch.size() < size) batch.push_back(::torch::tensor(next_++));
    return batch.empty() ? std::nullopt : std::optional(batch);
  }
  void reset() override { next_ = 0; }
  std::optional<std::size_t> size() const override { return std::nullopt; }
  void save(::torch::serialize::OutputArchive&) const override {}
  void load(::torch::serialize::InputArchive&) override {}
  std::int64_t count_;
  std::int64_t next_ = 0;
};

template <class Loader>
std::vector<std::int64_t> numbers_of(Loader& loader) {
  std::vector<std::int64_t> found;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch.size(0); ++i) found.push_back(batch[i].template item<std::int64_t>());
  return found;
}

TEST(StreamLoader, GivesAStatefulDatasetFromItsBeginningInEachEpoch) {
  for (const int threads : {0, 1, 4}) {
    auto loader = prepare_data_loader(Counting(5), {.batch_size = 2, .num_threads = threads});
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(loader.epoch(), epoch);
      EXPECT_EQ(numbers_of(loader), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
    }
  }
  auto shared = prepare_data_loader(::torch::data::datasets::make_shared_dataset<Counting>(3), {.batch_size = 3});
  EXPECT_TRUE(shared.begin()->equal(::torch::arange(3)));
  EXPECT_THROW(prepare_data_loader(Counting(5), {.batch_size = 0}), ConfigError);
  EXPECT_THROW(prepare_data_loader(Counting(5), {.shuffle = true}), ConfigError);
}

TEST(StreamLoader, GoesOnWhereItWas) {
  auto loader = prepare_data_loader(Counting(7), {.batch_size = 2});
  numbers_of(loader);
  Value state;
  for (auto& batch : loader) {
    state = loader.state();
    if (batch[0].item<std::int64_t>() == 2) break;
  }
  EXPECT_EQ(state, (Value{{"kind", "stream"}, {"epoch", 1}, {"batches", 2}, {"world_size", 1}}));
  auto other = prepare_data_loader(Counting(7), {.batch_size = 2});
  other.load_state(state);
  EXPECT_EQ(other.state(), state);
  EXPECT_EQ(numbers_of(other), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(other.epoch(), 2);
  EXPECT_EQ(numbers_of(other).size(), 7u);
  state["world_size"] = 2;
  EXPECT_THROW(other.load_state(state), ConfigError);
  EXPECT_THROW(other.load_state({{"kind", "samples"}}), ConfigError);
}

/// Never ends by itself; may have a size.
struct Endless : ::torch::data::datasets::StreamDataset<Endless, ::torch::Tensor> {
  explicit Endless(std::optional<std::size_t> size) : size_(size) {}
  ::torch::Tensor get_batch(std::size_t size) override { return ::torch::zeros({static_cast<std::int64_t>(size)}); }
  std::optional<std::size_t> size() const override { return size_; }
  std::optional<std::size_t> size_;
};

TEST(StreamLoader, EndsWhereTheSizeSaysOrNever) {
  auto loader = prepare_data_loader(Endless(5), {.batch_size = 2});
  EXPECT_EQ(numbers_of(loader).size(), 5u);
  EXPECT_EQ(numbers_of(loader).size(), 5u);
  auto endless = prepare_data_loader(Endless(std::nullopt), {.batch_size = 2});
  int handed = 0;
  for (auto& batch : endless)
    if (batch.size(0) == 2 && ++handed == 100) break;
  EXPECT_EQ(handed, 100);
}

TEST(DataLoader, OrderDoesNotDependOnTheThreads) {
  std::vector<std::vector<std::int64_t>> orders;
  for (const int threads : {0, 1, 4}) {
    auto loader = prepare_data_loader(Numbers(101), {.batch_size = 7, .shuffle = true, .num_threads = threads});
    auto& order = orders.emplace_back();
    for (int epoch = 0; epoch < 3; ++epoch)
      for (auto& batch : loader)
        for (std::int64_t i = 0; i < batch.target.size(0); ++i) order.push_back(batch.target[i].item<std::int64_t>());
  }
  EXPECT_EQ(orders[0].size(), 303u);
  EXPECT_EQ(orders[1], orders[0]);
  EXPECT_EQ(orders[2], orders[0]);
}

TEST(DataLoader, CountsWhatWasHandedOutAndGoesOnThere) {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .num_threads = 2};
  auto loader = prepare_data_loader(Numbers(20), options);
  auto other = prepare_data_loader(Numbers(20), options);
  std::vector<::torch::Tensor> rest;
  int handed = 0;
  for (auto& batch : loader) {
    if (++handed == 2) other.load_state(loader.state());  // whatever is loaded ahead
    if (handed > 2) rest.push_back(batch.target);
  }
  std::size_t next = 0;
  for (auto& batch : other) EXPECT_TRUE(batch.target.equal(rest.at(next++)));
  EXPECT_EQ(next, 3u);
}

TEST(DataLoader, MayBeLeftEarly) {
  auto loader = prepare_data_loader(Numbers(100), {.batch_size = 1, .num_threads = 3});
  for (auto& batch : loader) {
    EXPECT_EQ(batch.target.item<std::int64_t>(), 0);
    break;
  }
  EXPECT_EQ(loader.state()["samples"], 1);
  EXPECT_EQ(loader.begin()->target.item<std::int64_t>(), 0) << "a new pass";
  EXPECT_EQ(loader.epoch(), 1);
}

struct Broken {
  int operator[](std::size_t sample) const {
    if (sample == 5) throw std::runtime_error("sample 5 is broken");
    return static_cast<int>(sample);
  }
  std::size_t size() const { return 10; }
};

TEST(DataLoader, ThrowsTheErrorOfTheDatasetWhereItsBatchWouldBe) {
  for (const int threads : {0, 2}) {
    auto loader = prepare_data_loader(Broken(), {.batch_size = 2, .num_threads = threads});
    int handed = 0;
    try {
      for (auto& batch : loader) handed += batch.size(0) > 0;
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "sample 5 is broken");
    }
    EXPECT_EQ(handed, 2);
  }
}

}  // namespace
}  // namespace lockstep::torch
