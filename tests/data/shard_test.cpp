#include <lockstep/data.h>

#include <arrow/api.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

/// One rank of a run that has these data sets.
class FakeSession final : public Session {
 public:
  FakeSession(Value plan, int rank, int world) : plan_(std::move(plan)), rank_(rank), world_(world) {}

  std::map<std::string, Value> saved;                       ///< what a checkpoint held
  std::map<std::string, std::function<Value()>> positions;  ///< that the next one shall hold

  int world_rank() const override { return rank_; }
  int world_size() const override { return world_; }
  int local_rank() const override { return rank_; }
  int local_world_size() const override { return world_; }
  int node_rank() const override { return 0; }
  const std::string& node_address(int) const override { return text_; }
  int attempt() const override { return 0; }
  const Value& config() const override { return plan_; }
  const std::string& experiment_name() const override { return text_; }
  const std::string& trial_name() const override { return text_; }
  const std::string& trial_id() const override { return text_; }
  const std::string& trial_dir() const override { return text_; }
  std::optional<Checkpoint> checkpoint() override { return std::nullopt; }
  std::optional<Value> saved_position(const std::string& dataset) override {
    return saved.contains(dataset) ? std::optional(saved[dataset]) : std::nullopt;
  }
  void keep_position(const std::string& dataset, std::function<Value()> position) override {
    positions[dataset] = std::move(position);
  }
  const Value& data_plan() const override { return plan_; }
  void report(const Value&, const std::optional<Checkpoint>&) override {}
  void barrier(std::chrono::duration<double>) override {}
  Bytes broadcast_from_rank_zero(Bytes bytes, std::chrono::duration<double>) override { return bytes; }
  void request_stop() override {}
  bool should_stop() override { return false; }
  bool stopping() const override { return false; }

 private:
  Value plan_;
  int rank_;
  int world_;
  std::string text_;
};

Value plan_of(std::int64_t rows, bool resume = true) {
  const Value range{{"read", "range"}, {"count", rows}, {"steps", Value::array()}};
  Value limited = range;
  limited["steps"].push_back({{"limit", 5}});
  return {{"datasets", {{"train", range}, {"few", limited}}},
          {"config",
           {{"datasets_to_split", {"train"}},
            {"datasets_to_shuffle", {"train"}},
            {"seed", 4},
            {"window", 100},
            {"equal", "pad"},
            {"prefetch", 2},
            {"resume", resume}}}};
}

std::vector<std::int64_t> numbers_in(const arrow::RecordBatch& batch) {
  const auto& array = static_cast<const arrow::Int64Array&>(*batch.column(0));
  return {array.raw_values(), array.raw_values() + array.length()};
}

std::vector<std::int64_t> epoch_of(DatasetShard shard, std::int64_t batch_size) {
  std::vector<std::int64_t> rows;
  for (const auto& batch : shard.batches(batch_size)) {
    const auto more = numbers_in(*batch);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

TEST(DatasetShard, RanksShareTheRowsOfTrainAndHaveAllOfOthers) {
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank < 2; ++rank) {
    FakeSession session(plan_of(1000), rank, 2);
    const auto part = epoch_of(session.dataset_shard("train"), 50);
    EXPECT_EQ(part.size(), 500U);
    rows.insert(rows.end(), part.begin(), part.end());
    EXPECT_EQ(epoch_of(session.dataset_shard("few"), 2), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  }
  EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
  std::sort(rows.begin(), rows.end());
  std::vector<std::int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(rows, all);
}

TEST(DatasetShard, GoesOnWhereItWasWithAnotherNumberOfRanks) {
  FakeSession whole(plan_of(1000), 0, 1);
  const auto order = epoch_of(whole.dataset_shard("train"), 100);
  const auto second = epoch_of(whole.dataset_shard("train"), 100);
  EXPECT_NE(order, second);

  FakeSession before(plan_of(1000), 0, 2);
  auto shard = before.dataset_shard("train");
  auto loop = shard.batches(50);
  auto at = loop.begin();
  ++at;
  EXPECT_EQ(before.positions.at("train")()["position"], 200);  // two batches on each of two ranks

  FakeSession after(plan_of(1000), 0, 1);
  after.saved["train"] = before.positions.at("train")();
  EXPECT_EQ(epoch_of(after.dataset_shard("train"), 70), std::vector<std::int64_t>(order.begin() + 200, order.end()));
  EXPECT_EQ(after.dataset_shard("train").epoch(), 1);
  EXPECT_EQ(epoch_of(after.dataset_shard("train"), 70), second);

  FakeSession anew(plan_of(1000, false), 0, 1);
  anew.saved = after.saved;
  EXPECT_EQ(epoch_of(anew.dataset_shard("train"), 70), order);
}

TEST(DatasetShard, SaysWhichDataSetsThereAre) {
  FakeSession session(plan_of(10), 0, 1);
  try {
    session.dataset_shard("trian");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("the data sets are train"), std::string::npos) << error.what();
  }
  EXPECT_THROW(session.dataset_shard("train").batches(0), ConfigError);
  EXPECT_EQ(session.dataset_shard("train").count(), 10);
  EXPECT_EQ(session.dataset_shard("train").schema()->field(0)->name(), "id");
  FakeSession none(Value::object(), 0, 1);
  EXPECT_THROW(none.dataset_shard("train"), ConfigError);
}

}  // namespace
}  // namespace lockstep
