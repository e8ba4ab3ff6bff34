// The smallest program: fits a line to points on two workers.
//
//     example_torch_minimal
//
// prints, after the run's progress,
//
//     y = 2.00 x + 1.00

#include <cstdio>
#include <lockstep/torch.h>

void train(lockstep::Session& session) {
  lockstep::torch::enable_reproducibility();
  std::vector<std::pair<torch::Tensor, torch::Tensor>> points;
  for (int i = 0; i < 64; ++i) points.emplace_back(torch::full({1}, i / 64.0), torch::full({1}, 2 * (i / 64.0) + 1));

  auto model = lockstep::torch::prepare_model(torch::nn::Linear(1, 1));
  auto loader = lockstep::torch::prepare_data_loader(points, {.batch_size = 8, .shuffle = true});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  for (int epoch = 0; epoch < 40; ++epoch)
    for (auto& [x, y] : loader) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), y).backward();
      optimizer.step();
    }
  session.report({{"slope", model->module().weight.item<double>()}, {"offset", model->module().bias.item<double>()}});
}
LOCKSTEP_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  const auto result = lockstep::TorchTrainer(train, {.scaling = {.num_workers = 2}}).fit();
  std::printf("y = %.2f x + %.2f\n", result.metrics["slope"].get<double>(), result.metrics["offset"].get<double>());
}
