#include <lockstep/torch/data.h>

#include <arrow/api.h>

#include <fstream>

#include "runs.h"

// Data sets as tensors: record batches one by one, and the batches of ranks in runs.
namespace lockstep::torch {
namespace {

using testing::HasSubstr;
using ::torch::Tensor;

std::shared_ptr<arrow::RecordBatch> numbers(std::int64_t rows) {
  arrow::DoubleBuilder x;
  arrow::Int32Builder n;
  arrow::StringBuilder name;
  for (std::int64_t row = 0; row < rows; ++row) {
    EXPECT_TRUE(x.Append(static_cast<double>(row) / 2).ok());
    EXPECT_TRUE(n.Append(static_cast<std::int32_t>(row)).ok());
    EXPECT_TRUE(name.Append("row " + std::to_string(row)).ok());
  }
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("x", arrow::float64()), arrow::field("n", arrow::int32()),
                                                 arrow::field("name", arrow::utf8())}),
                                  rows, {x.Finish().ValueOrDie(), n.Finish().ValueOrDie(), name.Finish().ValueOrDie()});
}

/// A batch whose only column, "image", has rows of this shape.
std::shared_ptr<arrow::RecordBatch> images(std::int64_t rows, int height, int width) {
  arrow::UInt8Builder pixels;
  for (std::int64_t pixel = 0; pixel < rows * height * width; ++pixel)
    EXPECT_TRUE(pixels.Append(static_cast<std::uint8_t>(pixel)).ok());
  auto lines = arrow::FixedSizeListArray::FromArrays(pixels.Finish().ValueOrDie(), width).ValueOrDie();
  auto image = arrow::FixedSizeListArray::FromArrays(lines, height).ValueOrDie();
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("image", image->type())}), rows, {image});
}

template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ToTensors, SharesTheMemoryOfNumbers) {
  auto batch = numbers(6);
  const auto* first = static_cast<const arrow::DoubleArray&>(*batch->column(0)).raw_values();
  const auto tensors = to_tensors(*batch->Slice(2), {.columns = {"x", "n"}});
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors["x"].const_data_ptr(), first + 2);
  EXPECT_EQ(tensors["x"].dtype(), ::torch::kFloat64);
  EXPECT_EQ(tensors["n"].dtype(), ::torch::kInt32);
  batch.reset();  // the tensors keep it
  EXPECT_TRUE(tensors["x"].equal(::torch::arange(2, 6, ::torch::kFloat64) / 2));
  EXPECT_TRUE(tensors["n"].equal(::torch::arange(2, 6, ::torch::kInt32)));
  EXPECT_THROW(tensors["z"], c10::Error);
}

TEST(ToTensors, ConvertsTypes) {
  const auto tensors =
      to_tensors(*numbers(3), {.columns = {"n", "x"}, .dtype = ::torch::kFloat, .dtypes = {{"n", ::torch::kInt64}}});
  EXPECT_EQ(tensors.keys(), (std::vector<std::string>{"n", "x"}));
  EXPECT_EQ(tensors["n"].dtype(), ::torch::kInt64);
  EXPECT_TRUE(tensors["x"].equal(::torch::tensor({0.0F, 0.5F, 1.0F})));
}

TEST(ToTensors, FixedSizeListsHaveMoreDimensions) {
  const auto tensors = to_tensors(*images(4, 2, 3)->Slice(1, 2));
  EXPECT_TRUE(tensors["image"].equal(::torch::arange(6, 18).to(::torch::kUInt8).reshape({2, 2, 3})));
}

TEST(ToTensors, NamesTheColumnThatIsNoNumber) {
  EXPECT_THAT(refusal_of([] { to_tensors(*numbers(3)); }), HasSubstr("the column \"name\" is string"));
}

TEST(ToExample, PutsFeaturesSideBySide) {
  const auto batch = numbers(3);
  ExampleOptions options{.label_column = "n", .feature_columns = {"x", "n", "x"}};
  const auto [data, target] = to_example(*batch, options);
  EXPECT_TRUE(data.equal(::torch::tensor({{0.0, 0.0, 0.0}, {0.5, 1.0, 0.5}, {1.0, 2.0, 1.0}}, ::torch::kFloat64)));
  EXPECT_TRUE(target.equal(::torch::tensor({{0}, {1}, {2}}, ::torch::kInt32)));

  options.feature_dtype = ::torch::kFloat;
  options.label_dtype = ::torch::kInt64;
  options.unsqueeze_label_tensor = false;
  const auto typed = to_example(*batch, options);
  EXPECT_EQ(typed.data.dtype(), ::torch::kFloat);
  EXPECT_TRUE(typed.target.equal(::torch::arange(3)));

  options.feature_columns = {};  // all others, of which one is text
  EXPECT_THAT(refusal_of([&] { to_example(*batch, options); }), HasSubstr("the column \"name\" is string"));
}

TEST(ToExample, ColumnsOfTensorsStandAlone) {
  auto batch = images(2, 2, 3);
  batch = batch->AddColumn(1, "y", numbers(2)->column(1)).ValueOrDie();
  const auto [data, target] = to_example(*batch, {.label_column = "y"});
  EXPECT_EQ(data.sizes(), (std::vector<std::int64_t>{2, 2, 3}));
  EXPECT_EQ(data.const_data_ptr(), to_tensors(*batch)["image"].const_data_ptr());
  EXPECT_EQ(target.sizes(), (std::vector<std::int64_t>{2, 1}));
  EXPECT_THAT(refusal_of([&] {
                to_example(*batch, {.label_column = "y", .feature_columns = {"y", "image"}});
              }),
              HasSubstr("the feature column \"image\" has tensors of 2 dimensions"));
  EXPECT_THAT(refusal_of([] { to_example(*images(2, 2, 3), {.label_column = "image"}); }),
              HasSubstr("no column beside the label \"image\""));
}

class TensorBatches : public tests::Runs {
 protected:
  /// A file with the numbers 0 ... rows - 1.
  DatasetPlan file_of(int rows, const std::string& last_line = "") const {
    const auto path = directory_ / "numbers.csv";
    std::ofstream file(path);
    file << "n,half,name\n";
    for (int row = 0; row < rows; ++row) file << row << "," << row / 2.0 << ",row\n";
    file << last_line;
    return read_csv(path.string());
  }
};

/// Reports what all ranks together have seen in two epochs.
void sum_up(Session& session) {
  auto shard = session.dataset_shard("train");
  std::int64_t sum = 0, rows = 0, batches = 0;
  bool is_right = true;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : tensor_batches(shard, {.batch_size = 30, .columns = {"n", "half"}})) {
      is_right = is_right && batch["half"].mul(2).equal(batch["n"].to(::torch::kFloat64));
      batch["n"] += 1;  // a batch is the loop's own
      sum += batch["n"].sum().item<std::int64_t>();
      rows += batch["n"].size(0);
      ++batches;
    }
    is_right = is_right && shard.epoch() == epoch + 1;
  }
  for (auto& [data, target] :
       example_batches(shard, {.batch_size = 500, .label_column = "n", .feature_columns = {"half"}}))
    is_right = is_right && data.mul(2).equal(target.to(::torch::kFloat64)) && data.size(1) == 1;
  const Tensor all = all_reduce(::torch::tensor({sum, rows, batches, is_right ? std::int64_t{1} : std::int64_t{0}}));
  session.report({{"sum", all[0].item<std::int64_t>()},
                  {"rows", all[1].item<std::int64_t>()},
                  {"batches", all[2].item<std::int64_t>()},
                  {"right", all[3].item<std::int64_t>()}});
}
LOCKSTEP_TRAIN_FUNCTION(sum_up);

TEST_F(TensorBatches, RanksShareTheRowsOfEveryEpoch) {
  TorchTrainer trainer(sum_up, options(2));
  const Value metrics = trainer.datasets({{"train", file_of(1000)}}).fit().metrics;
  EXPECT_EQ(metrics["rows"], 2000);
  EXPECT_EQ(metrics["sum"], 2 * (999 * 1000 / 2 + 1000));
  EXPECT_EQ(metrics["batches"], 2 * 34);
  EXPECT_EQ(metrics["right"], 2);
}

/// Stops after a part of the epoch, and goes on with the rest when it starts again.
void take_rows(Session& session) {
  std::int64_t sum = 0;
  if (auto checkpoint = session.checkpoint()) sum = checkpoint->to_dict()["sum"];
  int batches = 0;
  for (auto& batch : tensor_batches(session.dataset_shard("train"), {.batch_size = 50, .columns = {"n"}})) {
    sum += batch["n"].sum().item<std::int64_t>();
    session.report({{"sum", sum}}, Checkpoint::from_dict({{"sum", sum}}));
    if (++batches == session.config()["batches"]) return;
  }
}
LOCKSTEP_TRAIN_FUNCTION(take_rows);

TEST_F(TensorBatches, GoOnInTheMiddleOfAnEpoch) {
  const std::map<std::string, DatasetPlan> data{{"train", file_of(1000)}};
  TrainerOptions given = options(1, {{"batches", 7}});
  const auto first = TorchTrainer(take_rows, given).datasets(data).fit();
  given.config["batches"] = -1;
  given.resume_from = first.checkpoint;
  EXPECT_EQ(TorchTrainer(take_rows, given).datasets(data).fit().metrics["sum"], 999 * 1000 / 2);
}

/// Reports how calls with wrong options and columns fail.
void fail_in_order(Session& session) {
  auto shard = session.dataset_shard("train");
  const auto loop = [&](const TensorBatchOptions& options) {
    return refusal_of([&] {
      for ([[maybe_unused]] auto& batch : tensor_batches(shard, options)) continue;
    });
  };
  const auto at_once = [&](const TensorBatchOptions& options) {
    return refusal_of([&] { tensor_batches(shard, options); });
  };
  session.report({{"text", at_once({})},
                  {"missing", at_once({.columns = {"halv"}})},
                  {"dtypes", at_once({.columns = {"n"}, .dtypes = {{"m", ::torch::kFloat}}})},
                  {"size", at_once({.batch_size = 0, .columns = {"n"}})},
                  {"label", refusal_of([&] { example_batches(shard, {.label_column = "name"}); })},
                  {"nulls", loop({.columns = {"n", "half"}})},
                  {"none", loop({.columns = {"n"}})}});
}
LOCKSTEP_TRAIN_FUNCTION(fail_in_order);

TEST_F(TensorBatches, SayWhatIsWrongWithAColumn) {
  TorchTrainer trainer(fail_in_order, options(1));
  const Value said = trainer.datasets({{"train", file_of(100, "100,,row\n")}}).fit().metrics;
  EXPECT_THAT(said["text"].get<std::string>(), HasSubstr("the column \"name\" is string"));
  EXPECT_THAT(said["missing"].get<std::string>(), HasSubstr("no column \"halv\"; the columns are half, n"));
  EXPECT_THAT(said["dtypes"].get<std::string>(), HasSubstr("no column \"m\""));
  EXPECT_THAT(said["size"].get<std::string>(), HasSubstr("batch"));
  EXPECT_THAT(said["label"].get<std::string>(), HasSubstr("the column \"name\" is string"));
  EXPECT_THAT(said["nulls"].get<std::string>(), HasSubstr("a batch of the column \"half\" has 1 null"));
  EXPECT_EQ(said["none"], "");
}

}  // namespace
}  // namespace lockstep::torch
