// DDP steps a second in C++: the model of benchmarks/torch_ddp.py, 10 M parameters, batch 16.
//
//     cpp_ddp_benchmark [WORKERS [STEPS]]
//
// prints one number, the median over the steps.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <lockstep/torch.h>

namespace nn = torch::nn;

void measure(lockstep::Session& session) {
  using Clock = std::chrono::steady_clock;
  torch::manual_seed(0);
  const int64_t width = 1600;
  nn::Sequential layers;
  for (int layer = 0; layer < 4; ++layer) layers->push_back(nn::Linear(width, width));
  auto model = lockstep::torch::prepare_model(layers);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  const auto inputs = torch::randn({16, width});
  std::vector<double> seconds;
  for (int step = -5; step < session.config()["steps"].get<int>(); ++step) {
    const auto begin = Clock::now();
    optimizer.zero_grad();
    model->forward(inputs).square().mean().backward();
    optimizer.step();
    if (step >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2), seconds.end());
  session.report({{"rate", 1 / seconds[seconds.size() / 2]}});
}
LOCKSTEP_TRAIN_FUNCTION(measure);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);
  lockstep::TrainerOptions options{.config = {{"steps", argc > 2 ? std::stoi(argv[2]) : 40}},
                                   .scaling = {.num_workers = argc > 1 ? std::stoi(argv[1]) : 2}};
  std::string place = (std::filesystem::temp_directory_path() / "lockstep_cpp_ddp_XXXXXX").string();
  if (mkdtemp(place.data()) == nullptr) return 1;
  options.run.storage_path = place;
  options.run.verbose = 0;
  const auto result = lockstep::TorchTrainer(measure, options).fit();
  std::filesystem::remove_all(place);
  std::printf("%.3f\n", result.metrics["rate"].get<double>());
}
