// Trains a small network on several workers: it learns to which of three arms of a spiral a point belongs.
//
//     build/@NAME@
//     build/@NAME@ --workers 4 --epochs 20
// build/@NAME@ --epochs 20 --resume RUN_DIRECTORY     continues from a run's last checkpoint
//
// Every worker is a process of this program. `lockstep runs` lists the runs, `lockstep logs RUN` what workers printed.

#include <cmath>
#include <cstdio>
#include <lockstep/torch.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace nn = torch::nn;

constexpr int64_t kArms = 3;

/// Noisy points on the arms of a spiral; the same seed gives the same points. Replace it by your data: any type with
/// size() and a const operator[], or a torch::data dataset.
class Spirals {
 public:
  Spirals(int64_t size, uint64_t seed) {
    auto generator = at::detail::createCPUGenerator(seed);
    labels_ = torch::randint(kArms, {size}, generator, torch::kInt64);
    const auto radius = torch::rand({size}, generator);
    const auto noise = torch::randn({size}, generator) * 0.15;
    const auto angle = radius * 5 + labels_ * (2 * M_PI / kArms) + noise;
    points_ = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  }

  size_t size() const { return static_cast<size_t>(labels_.size(0)); }
  std::pair<torch::Tensor, torch::Tensor> operator[](size_t index) const {
    const auto at = static_cast<int64_t>(index);
    return {points_[at], labels_[at]};
  }

 private:
  torch::Tensor points_, labels_;
};

/// Your model.
struct NetImpl : nn::Module {
  NetImpl() {
    first = register_module("first", nn::Linear(2, 64));
    second = register_module("second", nn::Linear(64, 64));
    last = register_module("last", nn::Linear(64, kArms));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first->forward(x));
    x = torch::relu(second->forward(x));
    return last->forward(x);
  }
  nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

/// Runs on every worker at the same time.
void train(lockstep::Session& session) {
  const auto& config = session.config();
  lockstep::torch::enable_reproducibility();

  // The copies of the model on all workers stay equal: backward() averages gradients over the workers.
  auto model = lockstep::torch::prepare_model(Net());
  torch::optim::Adam optimizer(model->parameters(), config["lr"].get<double>());

  // Each worker gets its part of the data, in a new order in each epoch. batch_size is per worker.
  auto train_loader = lockstep::torch::prepare_data_loader(Spirals(3000, 1), {.batch_size = 16, .shuffle = true});
  auto test_loader = lockstep::torch::prepare_data_loader(Spirals(600, 2), {.batch_size = 50});

  // After a failure, and with --resume, there is a checkpoint to continue from.
  int64_t start = 0;
  if (auto checkpoint = session.checkpoint())
    start = lockstep::torch::load(*checkpoint, *model, optimizer)["epoch"].get<int64_t>() + 1;

  for (int64_t epoch = start; epoch < config["num_epochs"]; ++epoch) {
    train_loader.set_epoch(epoch);
    model->train();
    double loss_sum = 0;
    for (auto& [points, labels] : train_loader) {
      optimizer.zero_grad();
      auto loss = nn::functional::cross_entropy(model->forward(points), labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
    }

    model->eval();
    torch::NoGradGuard no_grad;
    int64_t correct = 0, seen = 0;
    for (auto& [points, labels] : test_loader) {
      correct += model->forward(points).argmax(1).eq(labels).sum().item<int64_t>();
      seen += labels.size(0);
    }

    // Every worker has seen its own part; the mean over all workers gives the metrics.
    const auto mean = lockstep::torch::all_reduce_mean(
        {{"loss", loss_sum / static_cast<double>(train_loader.size())}, {"correct", correct}, {"seen", seen}});
    const double accuracy = mean["correct"].get<double>() / mean["seen"].get<double>();

    // Every worker reports; rank 0's metrics and checkpoint are the run's. The checkpoint is written in the background.
    session.report({{"epoch", epoch}, {"loss", mean["loss"]}, {"accuracy", accuracy}},
                   lockstep::torch::checkpoint(*model, optimizer, {{"epoch", epoch}}));
  }
}
LOCKSTEP_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs train() here and never returns

  lockstep::TrainerOptions options{.config = {{"lr", 3e-3}, {"num_epochs", 10}}, .scaling = {.num_workers = 2}};
  options.run.failure.max_failures = 3;    // workers that die are restarted from the last checkpoint
  options.run.checkpoint.num_to_keep = 2;  // the best two, and the last
  options.run.checkpoint.score_attribute = "accuracy";
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
      if (option == "--workers" && !value.empty())
        options.scaling.num_workers = std::stoi(value);
      else if (option == "--epochs" && !value.empty())
        options.config["num_epochs"] = std::stoi(value);
      else if (option == "--resume" && !value.empty())
        options.resume_from = lockstep::Result::from_path(value).checkpoint;
      else
        throw std::invalid_argument("usage: @NAME@ [--workers N] [--epochs N] [--resume RUN_DIRECTORY]");
    }

    const auto result = lockstep::TorchTrainer(train, options).fit();
    if (!result.metrics.contains("accuracy")) {
      std::printf("nothing to do: the checkpoint has all epochs; give more with --epochs\n");
      return 0;
    }
    std::printf("epoch %d: loss %.4f, accuracy %.1f%%\n", result.metrics["epoch"].get<int>(),
                result.metrics["loss"].get<double>(), 100 * result.metrics["accuracy"].get<double>());
    std::printf("run directory: %s\n", result.path.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
