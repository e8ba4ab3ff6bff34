#include "runs.h"

namespace lockstep::torch {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

nn::Sequential network() { return nn::Sequential(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 2)); }

void train(nn::Sequential& model, optim::Optimizer& optimizer, int steps, int seed) {
  ::torch::manual_seed(static_cast<std::uint64_t>(seed));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model->forward(::torch::randn({6, 4})).square().mean().backward();
    optimizer.step();
  }
}

std::unique_ptr<optim::Optimizer> make(const std::string& kind, const nn::Sequential& model) {
  const auto parameters = model->parameters();
  if (kind == "SGD") return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
  if (kind == "Adam") return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(1e-2).amsgrad(true));
  if (kind == "AdamW") return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-2));
  if (kind == "RMSprop")
    return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(1e-2).momentum(0.5).centered(true));
  return std::make_unique<optim::Adagrad>(parameters, optim::AdagradOptions(1e-2));
}

class Optimizers : public testing::TestWithParam<std::string> {};

TEST_P(Optimizers, GoOnBitByBit) {
  auto model = network();
  auto optimizer = make(GetParam(), model);
  train(model, *optimizer, 3, 1);
  const Checkpoint saved = checkpoint(*model, *optimizer, {{"epoch", 3}});
  auto other = network();
  auto other_optimizer = make(GetParam(), other);
  for (auto& group : other_optimizer->param_groups()) group.options().set_lr(123);
  train(other, *other_optimizer, 1, 2);
  const Value rest = load(Checkpoint::from_bytes(saved.to_bytes()), *other, *other_optimizer);
  EXPECT_EQ(rest, (Value{{"epoch", 3}}));
  EXPECT_EQ(other_optimizer->param_groups()[0].options().get_lr(), optimizer->param_groups()[0].options().get_lr());
  train(model, *optimizer, 3, 5);
  train(other, *other_optimizer, 3, 5);
  EXPECT_EQ(tests::fingerprint(*model), tests::fingerprint(*other));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Optimizers, testing::Values("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"),
                         [](const auto& info) { return info.param; });

TEST(Checkpoints, StandByParameterName) {
  auto model = network();
  optim::Adam optimizer(model->parameters(), 1e-3);
  train(model, optimizer, 1, 1);
  const Checkpoint saved = checkpoint(*model, optimizer);
  std::set<std::string> names;
  for (const auto& tensor : saved.tensors()) names.insert(tensor.name);
  EXPECT_TRUE(names.contains("model.0.weight"));
  EXPECT_TRUE(names.contains("model.1.num_batches_tracked"));
  EXPECT_TRUE(names.contains("optimizer.state.3.bias.exp_avg"));
  EXPECT_EQ(saved.to_dict()["optimizer"]["param_groups"][0]["params"][0], "0.weight");
}

TEST(Checkpoints, OfAPreparedModelAreThoseOfTheUsers) {
  auto model = network();
  auto prepared = prepare_model(model);
  EXPECT_EQ(checkpoint(*prepared).to_bytes(), checkpoint(*model).to_bytes());
  auto other = prepare_model(network());
  load(checkpoint(*model), *other);
  EXPECT_EQ(tests::fingerprint(*other), tests::fingerprint(*model));
}

TEST(Checkpoints, StoreAParameterWithTwoNamesOnce) {
  struct Tied : nn::Module {
    Tied() : weight(register_parameter("weight", ::torch::ones({3}))) { register_parameter("again", weight); }
    ::torch::Tensor weight;
  } tied;
  const Checkpoint saved = checkpoint(tied);
  EXPECT_EQ(saved.tensors().size(), 1u);
  EXPECT_EQ(saved.to_dict()["model"]["again"]["$tensor"], "model.weight");
}

TEST(Checkpoints, ThatDoNotFitChangeNothing) {
  auto model = network();
  optim::Adam adam(model->parameters(), 1e-3);
  train(model, adam, 1, 1);
  const std::string before = tests::fingerprint(*model);
  const auto message = [&](const Checkpoint& saved, optim::Optimizer& optimizer) -> std::string {
    try {
      load(saved, *model, optimizer);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  auto wide = nn::Sequential(nn::Linear(4, 9), nn::BatchNorm1d(9), nn::ReLU(), nn::Linear(9, 2));
  optim::Adam wide_adam(wide->parameters(), 1e-3);
  EXPECT_THAT(message(checkpoint(*wide, wide_adam), adam), testing::HasSubstr("0.weight has the shape [9, 4]"));
  auto narrow = nn::Sequential(nn::Linear(4, 8));
  EXPECT_THAT(message(checkpoint(*narrow), adam), testing::HasSubstr("has no \"optimizer\""));
  optim::Adam narrow_adam(narrow->parameters(), 1e-3);
  EXPECT_THAT(message(checkpoint(*narrow, narrow_adam), adam),
              testing::HasSubstr("it has no 1.weight, 1.bias, 3.weight"));
  auto other = network();
  optim::SGD sgd(other->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  train(other, sgd, 1, 2);
  EXPECT_THAT(message(checkpoint(*other, sgd), adam), testing::HasSubstr("momentum_buffer of 0.weight, which Adam"));
  EXPECT_EQ(tests::fingerprint(*model), before);
  EXPECT_THROW(checkpoint(*model, {{"model", 1}}), ConfigError);
  EXPECT_THROW(checkpoint(*narrow, adam), ConfigError) << "the optimizer has parameters of another module";
}

TEST(Checkpoints, TakeHoldersAndPointers) {
  auto model = network();
  auto prepared = prepare_model(model);
  const std::shared_ptr<nn::Module> pointer = model.ptr();
  optim::SGD optimizer(model->parameters(), 0.1);
  EXPECT_EQ(checkpoint(model).to_bytes(), checkpoint(*model).to_bytes());
  EXPECT_EQ(checkpoint(prepared, optimizer, {{"epoch", 1}}).to_bytes(),
            checkpoint(pointer, optimizer, {{"epoch", 1}}).to_bytes());
  auto other = network();
  auto also_prepared = prepare_model(network());
  optim::SGD other_optimizer(other->parameters(), 0.1);
  EXPECT_EQ(load(checkpoint(model, optimizer, {{"epoch", 1}}), other, other_optimizer), (Value{{"epoch", 1}}));
  EXPECT_THROW(load(checkpoint(model, optimizer), other, other_optimizer)["epoch"].get<int>(), ConfigError);
  EXPECT_EQ(tests::fingerprint(*other), tests::fingerprint(*model));
  load(checkpoint(model), also_prepared);
  EXPECT_EQ(tests::fingerprint(*also_prepared), tests::fingerprint(*model));
}

TEST(Checkpoints, AreFoundUnderTheKeysOfOtherPrograms) {
  auto model = network();
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  train(model, optimizer, 1, 1);
  const Checkpoint saved = checkpoint(model, optimizer, {{"epoch", 3}});
  const auto renamed = [&](const std::string& model_key, const std::string& optimizer_key) {
    Value data = saved.to_dict();
    data[model_key] = std::exchange(data["model"], {});
    data[optimizer_key] = std::exchange(data["optimizer"], {});
    data.erase("model");
    data.erase("optimizer");
    return Checkpoint::from_dict(data, saved.tensors());
  };
  const auto loaded = [&](const Checkpoint& other, const CheckpointKeys& keys = {}) {
    auto net = network();
    optim::SGD net_optimizer(net->parameters(), 0.5);
    EXPECT_EQ(load(other, net, net_optimizer, keys), (Value{{"epoch", 3}}));
    EXPECT_EQ(tests::fingerprint(*net), tests::fingerprint(*model));
    EXPECT_EQ(net_optimizer.param_groups()[0].options().get_lr(), 0.1);
  };
  loaded(renamed("model_state_dict", "optimizer_state_dict"));
  loaded(renamed("state_dict", "optimizer_state_dict"));
  loaded(renamed("net", "sgd"), {.model = "net", .optimizer = "sgd"});
  try {
    load(renamed("net", "sgd"), *model);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("it has no \"model\" but epoch, net, sgd"));
  }
}

TEST(Checkpoints, GiveTensorsThatStandBesideTheModel) {
  auto model = network();
  const Checkpoint saved = checkpoint(model);
  const Value entry = saved.to_dict()["model"]["0.weight"];
  EXPECT_TRUE(get_tensor(saved, entry).equal(model->parameters()[0]));
  EXPECT_THROW(get_tensor(saved, 3), ConfigError);
  EXPECT_THROW(get_tensor(saved, {{"$tensor", "none"}}), StorageError);
}

TEST(Checkpoints, SayThatLbfgsIsNotStored) {
  auto model = network();
  const optim::LBFGS optimizer(model->parameters());
  try {
    checkpoint(model, optimizer);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the history of torch::optim::LBFGS cannot be stored"));
  }
}

}  // namespace
}  // namespace lockstep::torch
