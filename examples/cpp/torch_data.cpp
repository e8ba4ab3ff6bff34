// Fits a plane to the rows of a CSV file on two workers: a data set as tensors. The second run continues the first, in
// the middle of an epoch.
//
//     example_torch_data [RESULTS_DIRECTORY]
//
// prints, after the runs' progress,
//
//     y = 2.00 a - 1.00 b + 0.50

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <lockstep/torch.h>
#include <lockstep/torch/data.h>

void train(lockstep::Session& session) {
  lockstep::torch::enable_reproducibility();
  auto model = lockstep::torch::prepare_model(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  int64_t steps = 0;
  if (auto checkpoint = session.checkpoint())
    steps = lockstep::torch::load(*checkpoint, *model, optimizer)["steps"].get<int64_t>();

  auto shard = session.dataset_shard("train");  // goes on where the checkpoint was saved
  const auto most = session.config()["steps"].get<int64_t>();
  while (steps < most) {
    for (auto& [data, target] : lockstep::torch::example_batches(shard, {.batch_size = 50,
                                                                        .label_column = "y",
                                                                        .feature_columns = {"a", "b"},
                                                                        .feature_dtype = torch::kFloat,
                                                                        .label_dtype = torch::kFloat})) {
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model->forward(data), target);
      loss.backward();
      optimizer.step();
      if (++steps == most) break;
    }
  }
  const auto weight = model->module().weight.flatten();
  session.report({{"a", weight[0].item<double>()},
                  {"b", weight[1].item<double>()},
                  {"offset", model->module().bias.item<double>()},
                  {"epoch", shard.epoch()}},
                 lockstep::torch::checkpoint(*model, optimizer, {{"steps", steps}}));
}
LOCKSTEP_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  const std::filesystem::path results = argc > 1 ? argv[1] : "results";
  std::filesystem::create_directories(results);
  std::ofstream file(results / "plane.csv");
  file << "name,a,b,y\n";
  for (int n = 0; n < 1000; ++n) {
    const double a = n % 50 / 50.0, b = n % 37 / 37.0;
    file << "row " << n << "," << a << "," << b << "," << 2 * a - b + 0.5 << "\n";
  }
  file.close();

  lockstep::TrainerOptions options{
      .config = {{"steps", 25}}, .scaling = {.num_workers = 2}, .run = {.storage_path = results}};
  const auto plan = lockstep::read_csv((results / "plane.csv").string()).select_columns({"a", "b", "y"});
  const auto first = lockstep::TorchTrainer(train, options).datasets({{"train", plan}}).fit();
  options.config["steps"] = 300;
  options.resume_from = first.checkpoint;
  const auto metrics = lockstep::TorchTrainer(train, options).datasets({{"train", plan}}).fit().metrics;
  const double b = metrics["b"];
  std::printf("y = %.2f a %c %.2f b + %.2f\n", metrics["a"].get<double>(), b < 0 ? '-' : '+', std::abs(b),
              metrics["offset"].get<double>());
}
