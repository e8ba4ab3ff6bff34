// A small convolutional network learns handwritten digits on four workers: examples/python/quickstart.py in C++.
//
//     example_torch_digits                                    8 epochs
//     example_torch_digits --epochs 16 --resume RUN_DIRECTORY
//     example_torch_digits --data DIGITS.csv                  other data: 64 pixels from 0 to 16 and the digit in a
//     line
//
// The data (1797 images of 8 x 8 pixels) comes from scikit-learn; the build has written it to a file. The losses equal
// those of the Python program up to rounding. It reaches more than 95 % on images that it has not seen, and keeps the
// best two checkpoints.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <lockstep/torch.h>
#include <sstream>

namespace nn = torch::nn;

using Images = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

/// Training images and test images.
std::pair<Images, Images> digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("there is no file " + path + "; give one with --data");
  Images all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::vector<float> numbers;
    for (std::string number; std::getline(text, number, ',');) numbers.push_back(std::stof(number));
    auto row = torch::tensor(numbers);
    all.emplace_back(row.slice(0, 0, 64).reshape({1, 8, 8}) / 16, row[64].to(torch::kInt64));
  }
  const auto count = static_cast<int64_t>(all.size());
  const auto order = torch::randperm(count, at::detail::createCPUGenerator(0), torch::kInt64);
  Images train, test;
  for (int64_t i = 0; i < count; ++i)
    (i < 1440 ? train : test).push_back(all[static_cast<size_t>(order[i].item<int64_t>())]);
  return {train, test};
}

/// Create the layers one after the other, so that they draw their random weights in this order; constructor arguments
/// may be evaluated in any order.
nn::Sequential network() {
  nn::Sequential net;
  net->push_back(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
  net->push_back(nn::ReLU());
  net->push_back(nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
  net->push_back(nn::ReLU());
  net->push_back(nn::MaxPool2d(2));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(32 * 4 * 4, 64));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(64, 10));
  return net;
}

void train(lockstep::Session& session) {
  const auto& config = session.config();
  lockstep::torch::enable_reproducibility(0);
  const auto [train_set, test_set] = digits(config["data"].get<std::string>());
  auto model = lockstep::torch::prepare_model(network());
  torch::optim::Adam optimizer(model->parameters(), config["lr"].get<double>());
  auto train_loader = lockstep::torch::prepare_data_loader(
      train_set, {.batch_size = config["batch_size"].get<int64_t>(), .shuffle = true, .as_in_python = true});
  auto test_loader = lockstep::torch::prepare_data_loader(test_set, {.batch_size = 119});
  int64_t start = 0;
  if (auto checkpoint = session.checkpoint())
    start = lockstep::torch::load(*checkpoint, *model, optimizer)["epoch"].get<int64_t>() + 1;

  for (int64_t epoch = start; epoch < config["num_epochs"]; ++epoch) {
    train_loader.set_epoch(epoch);
    model->train();
    double total = 0;
    for (auto& [inputs, labels] : train_loader) {
      optimizer.zero_grad();
      auto loss = nn::functional::cross_entropy(model->forward(inputs), labels);
      loss.backward();
      optimizer.step();
      total += loss.item<double>();
    }
    model->eval();
    int64_t correct = 0, seen = 0;
    {
      torch::NoGradGuard no_grad;
      for (auto& [inputs, labels] : test_loader) {
        correct += model->forward(inputs).argmax(1).eq(labels).sum().item<int64_t>();
        seen += labels.size(0);
      }
    }
    const auto mean = lockstep::torch::all_reduce_mean(
        {{"loss", total / static_cast<double>(train_loader.size())}, {"correct", correct}, {"seen", seen}});
    const double accuracy = mean["correct"].get<double>() / mean["seen"].get<double>();
    session.report({{"epoch", epoch}, {"loss", mean["loss"]}, {"accuracy", accuracy}},
                   lockstep::torch::checkpoint(*model, optimizer, {{"epoch", epoch}}));
  }
}
LOCKSTEP_TRAIN_FUNCTION(train);

/// Prints a line for each epoch.
struct Table : lockstep::Callback {
  std::string name() const override { return "Table"; }
  void on_start(const lockstep::RunInfo&) override { std::printf("\nepoch      loss  test accuracy  seconds\n"); }
  void on_result(const lockstep::Value& m) override {
    std::printf("%5d  %8.4f  %12.2f%%  %7.2f\n", m["epoch"].get<int>(), m["loss"].get<double>(),
                100 * m["accuracy"].get<double>(), m["time_this_iter_s"].get<double>());
  }
};

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  Table table;
  lockstep::TrainerOptions options{
      .config = {{"lr", 2e-3}, {"batch_size", 16}, {"num_epochs", 8}, {"data", DIGITS_CSV}},
      .scaling = {.num_workers = 4}};
  options.run.failure.max_failures = 3;
  options.run.checkpoint.num_to_keep = 2;
  options.run.checkpoint.score_attribute = "accuracy";
  options.run.callbacks = {&table};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--epochs") options.config["num_epochs"] = std::stoi(value);
    if (option == "--data") options.config["data"] = value;
    if (option == "--results") options.run.storage_path = value;
    if (option == "--resume") options.resume_from = lockstep::Result::from_path(value).checkpoint;
  }
  const auto result = lockstep::TorchTrainer(train, options).fit();
  std::printf("\ntest accuracy: %.2f%%\nbest checkpoints:", 100 * result.metrics["accuracy"].get<double>());
  for (const auto& [checkpoint, metrics] : result.best_checkpoints)
    std::printf(" %s", checkpoint.path()->filename().c_str());
  std::printf("\nrun directory: %s\n", result.path.c_str());
}
