#include <sstream>

#include "runs.h"

// What prepare_model() takes and gives, and how training functions are found and fail.
namespace lockstep::torch {
namespace {

namespace nn = ::torch::nn;
using ::torch::Tensor;

class Models : public tests::Runs {};

struct Plain : nn::Module {
  Tensor forward(const Tensor& x, double factor = 1) { return layer(x) * factor; }
  nn::Linear layer{register_module("layer", nn::Linear(3, 2))};
};

struct HeldImpl : Plain {};
TORCH_MODULE(Held);

bool same_on_all(const std::string& text) {
  for (const auto& other : all_gather(Value(text)))
    if (other != text) return false;
  return true;
}

void freeze(nn::Module& module) {
  for (const auto& parameter : module.parameters()) parameter.requires_grad_(false);
}

TEST(PreparedModel, CanBeCalledAsOtherModulesAre) {
  const auto x = ::torch::ones({4, 3});
  auto plain = prepare_model(Plain());
  EXPECT_TRUE(plain(x, 2).equal(plain->forward(x) * 2));
  EXPECT_EQ(prepare_model(Held())(x).size(1), 2);
  EXPECT_EQ(prepare_model(std::make_shared<Plain>())(x).size(1), 2);
  EXPECT_EQ(prepare_model(std::make_unique<Plain>())(x).size(1), 2);
  EXPECT_EQ(prepare_model(nn::Linear(3, 2))(x).size(1), 2);
  EXPECT_EQ(prepare_model(nn::Sequential(nn::Linear(3, 2), nn::ReLU()))(x).size(1), 2);
  auto [output, state] = prepare_model(nn::GRU(3, 2))(::torch::ones({5, 1, 3}));
  EXPECT_EQ(output.size(0), 5);
}

TEST(PreparedModel, IsAModuleHolder) {
  auto model = prepare_model(Held());
  auto copy = model;
  EXPECT_EQ(&*copy, &*model) << "a copy is the same model";
  std::stringstream stream, text;
  ::torch::save(model, stream);
  auto other = prepare_model(Held());
  ::torch::load(other, stream);
  EXPECT_EQ(tests::fingerprint(*other), tests::fingerprint(*model));
  text << model;
  EXPECT_THAT(text.str(), testing::HasSubstr("Linear"));
  decltype(model) later = nullptr;
  EXPECT_FALSE(later);
  later = model;
  EXPECT_EQ(later(::torch::ones({1, 3})).size(1), 2);
}

TEST(PreparedModel, RefusesWhatItCannotPrepare) {
  EXPECT_THROW(prepare_model(nn::Linear(nullptr)), ConfigError);
  EXPECT_THROW(prepare_model(std::shared_ptr<Plain>()), ConfigError);
  EXPECT_THROW(prepare_model(std::unique_ptr<Plain>()), ConfigError);
  EXPECT_THROW(prepare_model(Plain(), {.bucket_bytes = 0}), ConfigError);
  EXPECT_THROW(prepare_model(Plain(), {.bucket_cap_mb = 0}), ConfigError);
  EXPECT_NO_THROW(prepare_model(Plain(), {.bucket_cap_mb = 0.5}));
}

struct BranchesImpl : nn::Module {
  Tensor forward(const Tensor& x, bool left) { return left ? one(x) : other(x); }
  nn::Linear one{register_module("one", nn::Linear(2, 2))};
  nn::Linear other{register_module("other", nn::Linear(2, 2))};
};
TORCH_MODULE(Branches);

void change_what_is_unused(Session& session) {
  auto model = prepare_model(Branches(), {.find_unused_parameters = true, .bucket_cap_mb = 0.001});
  for (int step = 0; step < 6; ++step) {
    model->zero_grad();
    model(::torch::ones({1, 2}), (step + session.world_rank()) % 2 == 0).sum().backward();
  }
  model->zero_grad();
  model(::torch::ones({1, 2}), true).sum().backward();
  session.report({{"one", model->module().one->weight.grad().mean().item<double>()}});
}
LOCKSTEP_TRAIN_FUNCTION(change_what_is_unused);

TEST_F(Models, MayUseOtherParametersInEveryStep) {
  EXPECT_EQ(TorchTrainer(change_what_is_unused, options(2)).fit().metrics["one"], 1.0);
}

void prepare_models_that_are_not_trained(Session& session) {
  ::torch::manual_seed(static_cast<std::uint64_t>(session.world_rank()));
  nn::Sequential teacher(nn::Linear(3, 4), nn::BatchNorm1d(4));
  freeze(*teacher);
  const bool before = same_on_all(tests::fingerprint(*teacher));
  auto frozen = prepare_model(teacher);
  auto nothing = prepare_model(nn::ReLU());
  const bool after = same_on_all(tests::fingerprint(*frozen));
  for (int step = 0; step < 2; ++step) nothing(frozen(::torch::randn({5, 3})));
  session.report({{"before", before}, {"after", after}, {"relu", nothing(-::torch::ones(1)).item<double>()}});
}
LOCKSTEP_TRAIN_FUNCTION(prepare_models_that_are_not_trained);

TEST_F(Models, NeedNoParametersToTrain) {
  const Value metrics = TorchTrainer(prepare_models_that_are_not_trained, options(2)).fit().metrics;
  EXPECT_EQ(metrics["before"], false);
  EXPECT_EQ(metrics["after"], true) << "they begin with the parameters and buffers of rank 0";
  EXPECT_EQ(metrics["relu"], 0.0);
}

/// Every rank catches its error, so that each can be looked at.
void train_on_one_rank_only(Session& session) {
  const auto refused = [](auto model) {
    try {
      prepare_model(std::move(model));
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  nn::Linear partly(2, 2);
  if (session.world_rank() == 0) freeze(*partly);
  const auto frozen_here = all_gather(Value(refused(partly)));
  const nn::Sequential empty, full(nn::Linear(2, 2));
  const auto empty_here = all_gather(Value(refused(session.world_rank() == 0 ? empty : full)));
  const auto larger_here = all_gather(Value(refused(nn::Linear(2, 2 + session.world_rank()))));
  nn::Sequential tied(nn::Linear(2, 2), nn::Linear(2, 2));
  if (session.world_rank() == 0) tied->replace_module("1", tied->named_children()["0"]);
  const auto tied_here = all_gather(Value(refused(tied)));
  session.report({{"frozen", frozen_here}, {"empty", empty_here}, {"larger", larger_here}, {"tied", tied_here}});
}
LOCKSTEP_TRAIN_FUNCTION(train_on_one_rank_only);

TEST_F(Models, ThatDifferAreRefusedByAllRanksInTheSameWords) {
  const Value metrics = TorchTrainer(train_on_one_rank_only, options(2)).fit().metrics;
  for (const char* key : {"frozen", "empty", "larger", "tied"}) {
    EXPECT_THAT(metrics[key][0].get<std::string>(), testing::HasSubstr("different parameters"));
    EXPECT_EQ(metrics[key][0], metrics[key][1]);
  }
  EXPECT_THAT(
      metrics["larger"][0].get<std::string>(),
      testing::HasSubstr("0 of rank 0 is Float [2, 2] with strides [2, 1], trained, and of rank 1 it is Float [3"));
}

void leave_parameters_out(Session&) {
  auto model = prepare_model(Branches());
  for (int step = 0; step < 2; ++step) model(::torch::ones({1, 2}), true).sum().backward();
}
LOCKSTEP_TRAIN_FUNCTION(leave_parameters_out);

TEST_F(Models, WithUnusedParametersSayWhichOptionAllowsThem) {
  try {
    TorchTrainer(leave_parameters_out, options(2)).fit();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TrainingError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("prepare_model(model, {.find_unused_parameters = true})"));
  }
}

void train_apart(Session&) { prepare_model(nn::Linear(2, 2)); }
LOCKSTEP_TRAIN_FUNCTION(train_apart);

TEST_F(Models, AreRefusedByWorkersThatAreNotJoined) {
  EXPECT_NO_THROW(DataParallelTrainer(train_apart, options(1)).fit());
  try {
    DataParallelTrainer(train_apart, options(2)).fit();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TrainingError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("run the function with TorchTrainer"));
  }
}

namespace a {
void train(Session& session) { session.report({{"of", "a"}}); }
LOCKSTEP_TRAIN_FUNCTION(train);
}  // namespace a

namespace b {
void train(Session& session) { session.report({{"of", "b"}}); }
LOCKSTEP_TRAIN_FUNCTION(train);
}  // namespace b

class Functions : public tests::Runs {};

TEST_F(Functions, MayHaveTheSameName) {
  EXPECT_EQ(TorchTrainer(a::train, options(1)).fit().metrics["of"], "a");
  EXPECT_EQ(TorchTrainer(b::train, options(1)).fit().metrics["of"], "b");
  EXPECT_EQ(DataParallelTrainer(a::train, options(1)).fit().metrics["of"], "a");
  EXPECT_EQ(DataParallelTrainer(b::train, options(1)).fit().metrics["of"], "b");
}

void read_a_missing_key(Session& session) {
  for (int epoch = 0; epoch < session.config()["num_epochs"]; ++epoch) session.report({{"epoch", epoch}});
  session.report({{"lr", session.config()["learning_rate"].get<double>()}});
}
LOCKSTEP_TRAIN_FUNCTION(read_a_missing_key);

TEST_F(Functions, AreToldWhichKeyTheirConfigurationLacks) {
  try {
    TorchTrainer(read_a_missing_key, options(1, {{"num_epochs", 3}, {"lr", 0.1}})).fit();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TrainingError& error) {
    EXPECT_THAT(error.failures().front().message,
                testing::HasSubstr(R"(there is no key "learning_rate"; there are "num_epochs", "lr")"));
    EXPECT_EQ(error.result().state, "failed");
    EXPECT_EQ(error.result().metrics["epoch"], 2) << "what was reported before";
  }
}

void multiply_what_does_not_fit(Session&) { ::torch::ones({2, 3}).mm(::torch::ones({2, 3})); }
LOCKSTEP_TRAIN_FUNCTION(multiply_what_does_not_fit);

TEST_F(Functions, FailWithAMessageWithoutTheStack) {
  try {
    TorchTrainer(multiply_what_does_not_fit, options(1)).fit();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TrainingError& error) {
    const Failure& failure = error.failures().front();
    EXPECT_EQ(failure.message, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
    EXPECT_EQ(failure.type, "c10::Error");
    EXPECT_THAT(failure.traceback, testing::StartsWith("Exception raised from "));
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("Exception raised from")));
  }
}

}  // namespace
}  // namespace lockstep::torch
