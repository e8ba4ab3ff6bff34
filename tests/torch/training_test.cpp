#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "runs.h"

// Training on several ranks, each test a run of its own. What ranks have to show they report; rank 0's metrics are the
// result.
namespace lockstep::torch {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using ::torch::Tensor;

struct NetImpl : nn::Module {
  Tensor forward(const Tensor& x) { return last(::torch::tanh(second(::torch::tanh(first(x))))); }
  nn::Linear first{register_module("first", nn::Linear(6, 16))};
  nn::Linear second{register_module("second", nn::Linear(16, 16))};
  nn::Linear last{register_module("last", nn::Linear(16, 3))};
};
TORCH_MODULE(Net);

constexpr int kSteps = 20, kBatch = 12;

/// The whole batch of a step; a rank takes its part.
std::pair<Tensor, Tensor> batch_of(int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 + step));
  auto x = ::torch::randn({kBatch, 6}, generator);
  return {x, x.slice(1, 0, 3).sin()};
}

Tensor loss_of(const Tensor& output, const Tensor& target) { return (output - target).square().mean(); }

/// One process on whole batches, beginning with rank 0's parameters.
Net alone() {
  ::torch::manual_seed(100);
  Net net;
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto [x, y] = batch_of(step);
    loss_of(net->forward(x), y).backward();
    optimizer.step();
  }
  return net;
}

double distance(const nn::Module& one, const nn::Module& other, bool gradients) {
  double most = 0;
  const auto a = one.parameters(), b = other.parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, gradients ? (a[i].grad() - b[i].grad()).abs().max().item<double>()
                                    : (a[i] - b[i]).abs().max().item<double>());
  return most;
}

/// Before main(), and large enough for several threads.
const double sum_before_main = ::torch::ones({600, 600}).mm(::torch::ones({600, 600})).sum().item<double>();
const pid_t process_before_main = ::getpid();

bool same_on_all_after(const std::string& text) {
  for (const auto& other : all_gather(Value(text)))
    if (other != text) return false;
  return true;
}

/// Every rank begins with parameters of its own, and averages over parts of the same batches.
void train_together(Session& session) {
  const Value& config = session.config();
  if (config["nodes"].get<int>() > 1) {
    const std::string node = "node " + std::to_string(session.world_rank() % config["nodes"].get<int>());
    ::setenv("LOCKSTEP_COLLECTIVE_NODE", node.c_str(), 1);
  }
  join({.backend = config["backend"].get<std::string>()});
  ::torch::manual_seed(100 + static_cast<std::uint64_t>(session.world_rank()));
  auto model = prepare_model(
      Net(),
      {.bucket_bytes = 1024, .first_bucket_bytes = 256, .gradients_in_buckets = config["in_buckets"].get<bool>()});
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const int part = kBatch / session.world_size(), accumulate = config["accumulate"].get<int>();
  for (int step = 0; step < kSteps; ++step) {
    if (config["zero"] == "module")
      model->zero_grad();
    else
      optimizer.zero_grad(config["zero"] == "none");
    const auto [x, y] = batch_of(step);
    const int piece = part / accumulate;
    for (int turn = 0; turn < accumulate; ++turn) {
      const auto from = session.world_rank() * part + turn * piece;
      std::optional<NoSync> guard;
      if (turn + 1 < accumulate) guard.emplace(*model);
      (loss_of(model->forward(x.slice(0, from, from + piece)), y.slice(0, from, from + piece)) / accumulate).backward();
    }
    optimizer.step();
  }
  const Net expected = alone();
  session.report({{"gradients", distance(model->module(), *expected, true)},
                  {"parameters", distance(model->module(), *expected, false)},
                  {"same", same_on_all_after(tests::fingerprint(*model))}});
}
LOCKSTEP_TRAIN_FUNCTION(train_together);

struct Case {
  int workers;
  bool in_buckets;
  std::string zero;
  int accumulate;
  std::string backend = "auto";
  int nodes = 1;  ///< as if the ranks were on so many, in turn
};

class Training : public tests::Runs, public testing::WithParamInterface<Case> {};

TEST_P(Training, EqualsThatOfOneProcess) {
  const auto& [workers, in_buckets, zero, accumulate, backend, nodes] = GetParam();
  const Value config{
      {"in_buckets", in_buckets}, {"zero", zero}, {"accumulate", accumulate}, {"backend", backend}, {"nodes", nodes}};
  const Value metrics = TorchTrainer(train_together, options(workers, config)).fit().metrics;
  EXPECT_LT(metrics["gradients"].get<double>(), 1e-6);
  EXPECT_LT(metrics["parameters"].get<double>(), 1e-6);
  EXPECT_EQ(metrics["same"], true);
}

INSTANTIATE_TEST_SUITE_P(On, Training,
                         testing::Values(Case{1, true, "none", 1}, Case{2, true, "none", 1}, Case{3, true, "none", 1},
                                         Case{4, true, "none", 1}, Case{2, true, "memory", 1},
                                         Case{2, true, "module", 1}, Case{2, false, "none", 1},
                                         Case{2, false, "module", 1}, Case{2, true, "none", 3},
                                         Case{3, true, "memory", 2}, Case{2, false, "none", 2},
                                         Case{3, true, "none", 1, "gloo"}, Case{3, true, "none", 1, "lockstep"},
                                         Case{3, true, "none", 1, "lockstep", 2}, Case{4, true, "none", 1, "auto", 2}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return std::to_string(c.workers) + "_" + (c.in_buckets ? "in_buckets" : "copied") + "_" +
                                  c.zero + "_" + std::to_string(c.accumulate) + "_" + c.backend +
                                  (c.nodes > 1 ? "_" + std::to_string(c.nodes) + "_nodes" : "");
                         });

/// Which branch a rank uses depends on its rank; nobody uses "idle".
struct TwoBranchesImpl : nn::Module {
  std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& x, bool left) {
    return {left ? one(x) : other(x), {common(x)}};
  }
  nn::Linear one{register_module("one", nn::Linear(2, 2))};
  nn::Linear other{register_module("other", nn::Linear(2, 2))};
  nn::Linear common{register_module("common", nn::Linear(2, 2))};
  nn::Linear idle{register_module("idle", nn::Linear(2, 2))};
};
TORCH_MODULE(TwoBranches);

void leave_parameters_unused(Session& session) {
  auto model = prepare_model(TwoBranches(), {.find_unused_parameters = true});
  const bool left = session.world_rank() == 0;
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    const auto [mine, rest] = model->forward(::torch::ones({1, 2}), left);
    (mine.sum() + rest.front().sum()).backward();
  }
  TwoBranches::Impl& net = model->module();
  // On rank 0 alone the gradient of one.weight is 1, of other.weight 0; both are halved by the mean.
  session.report(
      {{"one", net.one->weight.grad().mean().item<double>()},
       {"other", net.other->weight.grad().mean().item<double>()},
       {"common", net.common->weight.grad().mean().item<double>()},
       {"idle", net.idle->weight.grad().defined() && net.idle->weight.grad().abs().max().item<double>() > 0}});
}
LOCKSTEP_TRAIN_FUNCTION(leave_parameters_unused);

class Runs : public tests::Runs {};

TEST_F(Runs, FindParametersThatSomeRanksDoNotUse) {
  const Value metrics = TorchTrainer(leave_parameters_unused, options(2)).fit().metrics;
  EXPECT_EQ(metrics["one"], 0.5);
  EXPECT_EQ(metrics["other"], 0.5);
  EXPECT_EQ(metrics["common"], 1.0);
  EXPECT_EQ(metrics["idle"], false);
}

void keep_buffers_equal(Session& session) {
  ::torch::manual_seed(static_cast<std::uint64_t>(session.world_rank()));
  auto model = prepare_model(nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4)));
  const auto step = [&] { model->forward(::torch::randn({5, 3})).sum().backward(); };
  const bool at_start = same_on_all_after(tests::fingerprint(*model));
  step();
  const bool after_one = same_on_all_after(tests::fingerprint(*model));
  const auto rank_zero = broadcast(model->buffers()[0].clone());
  auto own = model->buffers()[0];
  model->forward(::torch::randn({5, 3}));  // rank 0's buffers, then a step of this rank's
  {
    const ::torch::NoGradGuard no_grad;  // evaluation may differ between ranks: it exchanges nothing
    model->eval();
    if (session.world_rank() == 0) model->forward(::torch::randn({5, 3}));
  }
  session.report({{"at_start", at_start},
                  {"after_one", after_one},
                  {"moved", !own.equal(rank_zero)},
                  {"ranks", all_reduce_mean({{"one", 1}})["one"]}});
}
LOCKSTEP_TRAIN_FUNCTION(keep_buffers_equal);

TEST_F(Runs, BeginWithTheBuffersOfRankZero) {
  const Value metrics = TorchTrainer(keep_buffers_equal, options(2)).fit().metrics;
  EXPECT_EQ(metrics["at_start"], true);
  EXPECT_EQ(metrics["after_one"], false) << "the ranks saw different data";
  EXPECT_EQ(metrics["moved"], true);
  EXPECT_EQ(metrics["ranks"], 1.0);
}

void exchange(Session& session) {
  const int rank = session.world_rank();
  const auto mine = ::torch::full({2, 3}, rank + 1.0).t();  // not contiguous
  const auto sum = all_reduce(mine.clone(::torch::MemoryFormat::Preserve));
  const auto largest = all_reduce(::torch::tensor(rank), Reduce::max);
  const auto mean = all_reduce(::torch::full({2}, rank * 1.0), Reduce::mean);
  const auto root = broadcast(::torch::full({2}, rank), 1);
  const auto gathered = all_gather(::torch::tensor({rank}));
  const auto values = all_gather(Value{{"name", std::string(static_cast<std::size_t>(rank * 5), 'x')}});
  const auto told = broadcast(Value{{"rank", rank}}, 2);
  const Value metrics = all_reduce({{"loss", rank}, {"nested", {{"b", 2 * rank}, {"a", true}}}}, Reduce::sum);
  bool refused = false;
  try {
    all_reduce_mean({{"nested", {{"word", "text"}}}});
  } catch (const ConfigError& error) {
    refused = std::string(error.what()).find("nested/word") != std::string::npos;
  }
  barrier();
  session.report({{"sum", sum.eq(6).all().item<bool>()},
                  {"max", largest.item<int>()},
                  {"mean", mean[0].item<double>()},
                  {"root", root[1].item<int>()},
                  {"gathered", gathered.size() == 3 && gathered[2].item<int>() == 2},
                  {"length", values[2]["name"].get<std::string>().size()},
                  {"told", told["rank"]},
                  {"metrics", metrics},
                  {"refused", refused}});
}
LOCKSTEP_TRAIN_FUNCTION(exchange);

TEST_F(Runs, ExchangeTensorsAndMetrics) {
  const Value metrics = TorchTrainer(exchange, options(3)).fit().metrics;
  EXPECT_EQ(metrics["sum"], true);
  EXPECT_EQ(metrics["max"], 2);
  EXPECT_EQ(metrics["mean"], 1.0);
  EXPECT_EQ(metrics["root"], 1);
  EXPECT_EQ(metrics["gathered"], true);
  EXPECT_EQ(metrics["length"], 10);
  EXPECT_EQ(metrics["told"], 2);
  EXPECT_EQ(metrics["metrics"], (Value{{"loss", 3.0}, {"nested", {{"b", 6.0}, {"a", 3.0}}}}));
  EXPECT_EQ(metrics["refused"], true);
}

void exchange_numbers(Session& session) {
  const int rank = session.world_rank();
  const double mean = all_reduce(1.0 * rank);
  const double most = all_reduce(rank, Reduce::max);
  const Value lists = all_reduce({{"losses", {rank, 2 * rank}}, {"one", rank}});
  const Value single = all_reduce({{"loss", rank}});
  const Value bare = all_reduce(Value(rank), Reduce::sum);
  std::vector<std::string> refused;
  for (const Value& metrics : {Value{{"loss", 1}, {rank == 0 ? "accuracy" : "correct", 2}},
                               Value{{"losses", std::vector<int>(static_cast<std::size_t>(rank + 1))}}}) {
    try {
      all_reduce_mean(metrics);
    } catch (const ConfigError& error) {
      refused.emplace_back(error.what());
    }
  }
  session.report({{"mean", mean},
                  {"most", most},
                  {"lists", lists},
                  {"single", single},
                  {"bare", bare},
                  {"again", all_reduce_mean(rank)},
                  {"refused", refused},
                  {"refused_by_all", all_reduce(refused.size(), Reduce::min)}});
}
LOCKSTEP_TRAIN_FUNCTION(exchange_numbers);

TEST_F(Runs, ExchangeNumbersAndRefuseOtherKeys) {
  const Value metrics = TorchTrainer(exchange_numbers, options(3)).fit().metrics;
  EXPECT_EQ(metrics["mean"], 1.0);
  EXPECT_EQ(metrics["most"], 2.0);
  EXPECT_EQ(metrics["lists"], (Value{{"losses", {1.0, 2.0}}, {"one", 1.0}}));
  EXPECT_EQ(metrics["single"], (Value{{"loss", 1.0}}));
  EXPECT_EQ(metrics["bare"], 3.0);
  EXPECT_EQ(metrics["again"], 1.0);
  EXPECT_EQ(metrics["refused_by_all"], 2.0);
  EXPECT_THAT(metrics["refused"][0].get<std::string>(),
              testing::HasSubstr("only rank 0 has accuracy, only rank 1 has correct"));
  EXPECT_THAT(metrics["refused"][1].get<std::string>(),
              testing::HasSubstr("only rank 0 has nothing, only rank 1 has losses/1"));
}

/// As many batches of one number as it is told.
struct Counted : ::torch::data::datasets::StatefulDataset<Counted, Tensor> {
  explicit Counted(int count) : count_(count) {}
  std::optional<Tensor> get_batch(std::size_t) override {
    return given_ < count_ ? std::optional(::torch::tensor(given_++)) : std::nullopt;
  }
  void reset() override { given_ = 0; }
  std::optional<std::size_t> size() const override { return std::nullopt; }
  void save(::torch::serialize::OutputArchive&) const override {}
  void load(::torch::serialize::InputArchive&) override {}
  int count_;
  int given_ = 0;
};

void read_streams(Session& session) {
  auto loader = prepare_data_loader(Counted(4 + session.world_rank()));
  for (int epoch = 0; epoch < 2; ++epoch) {
    int handed = 0;
    for (auto& batch : loader) handed += all_reduce(batch.clone(), Reduce::max).equal(batch);
    session.report({{"handed", handed}, {"epoch", loader.epoch()}, {"most", all_reduce(handed, Reduce::max)}});
  }
}
LOCKSTEP_TRAIN_FUNCTION(read_streams);

TEST_F(Runs, EndAStreamOnAllRanksWhereTheFirstEnds) {
  const Value metrics = TorchTrainer(read_streams, options(3)).fit().metrics;
  EXPECT_EQ(metrics["handed"], 4);
  EXPECT_EQ(metrics["most"], 4.0);
  EXPECT_EQ(metrics["epoch"], 2);
}

void tell_whether_forked(Session& session) {
  session.report({{"forked", process_before_main != ::getpid()}, {"sum", sum_before_main}});
}
LOCKSTEP_TRAIN_FUNCTION(tell_whether_forked);

TEST_F(Runs, AreForkedThoughLibtorchWasUsedBeforeMain) {
  const Value metrics = TorchTrainer(tell_whether_forked, options(2)).fit().metrics;
  EXPECT_EQ(metrics["forked"], true);
  EXPECT_EQ(metrics["sum"], sum_before_main);
}

void build_different_models(Session& session) { prepare_model(nn::Linear(2, 2 + session.world_rank())); }
LOCKSTEP_TRAIN_FUNCTION(build_different_models);

TEST_F(Runs, RefuseModelsThatDiffer) {
  try {
    TorchTrainer(build_different_models, options(2)).fit();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TrainingError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("[prepare_model] the ranks have models with different parameters"));
  }
}

/// Trains with dropout and a shuffled loader, and reports its fingerprint; with "kill" rank 1 dies in the middle of a
/// backward pass of the first attempt.
void train_and_die(Session& session) {
  enable_reproducibility(7);
  auto model = prepare_model(nn::Sequential(nn::Linear(1, 32), nn::Dropout(0.2), nn::Tanh(), nn::Linear(32, 1)));
  optim::Adam optimizer(model->parameters(), 1e-2);
  std::vector<Tensor> data;
  for (int i = 0; i < 24; ++i) data.push_back(::torch::tensor({i / 24.0}, ::torch::kFloat32));
  auto loader = prepare_data_loader(data, {.batch_size = 4, .shuffle = true});
  int done = 0;
  if (const auto saved = session.checkpoint()) {
    const Value rest = load(*saved, *model, optimizer);
    done = rest["step"].get<int>();
    loader.load_state(rest["loader"]);
    set_rng_state(rest["random"]);
  }
  const int from = done;
  while (loader.epoch() < 3)
    for (auto& batch : loader) {
      optimizer.zero_grad();
      auto hidden = model->forward(batch);
      if (session.config()["kill"] == true && session.attempt() == 0 && session.world_rank() == 1 && done == 5) {
        session.checkpoint();  // whatever was reported is safe
        hidden.register_hook([](const Tensor&) { raise(SIGKILL); });
      }
      (hidden - batch.sin()).square().mean().backward();
      optimizer.step();
      ++done;
      session.report(
          {{"step", done}, {"from", from}, {"print", tests::fingerprint(*model)}},
          checkpoint(*model, optimizer, {{"step", done}, {"loader", loader.state()}, {"random", rng_state()}}));
      if (done == 5) session.checkpoint();  // rank 0 goes on when it is safe
    }
}
LOCKSTEP_TRAIN_FUNCTION(train_and_die);

TEST_F(Runs, RecoverWhenARankIsKilledInItsBackwardPass) {
  const auto plain = TorchTrainer(train_and_die, options(2, {{"kill", false}})).fit();
  const auto killed = TorchTrainer(train_and_die, options(2, {{"kill", true}}, 1)).fit();
  ASSERT_EQ(killed.failures.size(), 1u) << killed.failures.back().message;
  EXPECT_EQ(killed.failures[0].kind, FailureKind::signal);
  EXPECT_EQ(killed.failures[0].rank, 1) << "the rank that died is named, not one that lost it";
  EXPECT_EQ(plain.metrics["step"], 9);
  EXPECT_EQ(killed.metrics["step"], 9);
  EXPECT_EQ(killed.metrics["from"], 5) << "it went on from its checkpoint";
  EXPECT_EQ(killed.metrics["print"], plain.metrics["print"]) << "with the same bits";
}

/// Rank 0, which hosts the store, is done long before the others.
void end_unequally(Session& session) {
  auto value = ::torch::ones({1000});
  all_reduce(value);
  if (session.world_rank() == 0) return;
  session.report({{"rank", session.world_rank()}});
}
LOCKSTEP_TRAIN_FUNCTION(end_unequally);

TEST_F(Runs, LeaveTogether) { EXPECT_EQ(TorchTrainer(end_unequally, options(3)).fit().state, "finished"); }

TEST_F(Runs, GoOnWhenTheyAreRestored) {
  const auto before = TorchTrainer(train_and_die, options(2, {{"kill", false}})).fit();
  EXPECT_EQ(TorchTrainer::restore(before.path, train_and_die).fit().metrics["step"], 9);
}

void not_registered(Session&) {}

TEST_F(Runs, NeedARegisteredFunction) { EXPECT_THROW(TorchTrainer(not_registered, options(1)), ConfigError); }

}  // namespace
}  // namespace lockstep::torch
