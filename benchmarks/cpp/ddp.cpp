// DDP in C++, for benchmarks/torch_ddp.py:
//
//     cpp_ddp_benchmark steps WORKERS              prints steps a second: 10 M parameters, batch 16, median of rounds
//     cpp_ddp_benchmark start WORKERS PLACE KILLS  each rank writes PLACE/<attempt>_<rank> at its first step: the time
//                                                  and its pid; then it waits to be killed, KILLS times

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <lockstep/torch.h>
#include <string>
#include <thread>

namespace nn = torch::nn;
namespace fs = std::filesystem;

void steps(lockstep::Session& session) {
  using Clock = std::chrono::steady_clock;
  torch::manual_seed(0);
  nn::Sequential layers;
  for (int layer = 0; layer < 4; ++layer) layers->push_back(nn::Linear(1600, 1600));
  auto model = lockstep::torch::prepare_model(layers);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  const auto inputs = torch::randn({16, 1600});
  std::vector<double> rates;
  for (int round = 0; round < 6; ++round) {
    const auto begin = Clock::now();
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      model->forward(inputs).square().mean().backward();
      optimizer.step();
    }
    if (round > 0) rates.push_back(10 / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(rates.begin(), rates.end());
  session.report({{"rate", rates[rates.size() / 2]}});
}
LOCKSTEP_TRAIN_FUNCTION(steps);

void first_step(lockstep::Session& session) {
  auto model = lockstep::torch::prepare_model(nn::Linear(64, 64));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  model->forward(torch::ones({8, 64})).sum().backward();
  optimizer.step();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string name = session.config()["place"].get<std::string>() + "/" + std::to_string(session.attempt()) +
                           "_" + std::to_string(session.world_rank());
  std::ofstream(name + ".part") << std::fixed << std::setprecision(6) << std::chrono::duration<double>(now).count()
                                << " " << ::getpid();
  fs::rename(name + ".part", name);
  if (session.attempt() < session.config()["kills"].get<int>()) std::this_thread::sleep_for(std::chrono::minutes(10));
}
LOCKSTEP_TRAIN_FUNCTION(first_step);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode != "steps" && !(mode == "start" && argc == 5)) {
    std::fprintf(stderr, "usage: cpp_ddp_benchmark steps WORKERS | start WORKERS PLACE KILLS\n");
    return 2;
  }
  lockstep::TrainerOptions options{.scaling = {.num_workers = std::stoi(argv[2])}};
  std::string place = (fs::temp_directory_path() / "lockstep_cpp_ddp_XXXXXX").string();
  if (mkdtemp(place.data()) == nullptr) return 1;
  options.run.storage_path = place;
  options.run.verbose = 0;
  if (mode == "steps") {
    const auto result = lockstep::TorchTrainer(steps, options).fit();
    std::printf("%.3f\n", result.metrics["rate"].get<double>());
  } else {
    options.config = {{"place", argv[3]}, {"kills", std::stoi(argv[4])}};
    options.run.failure.max_failures = -1;
    lockstep::TorchTrainer(first_step, options).fit();
  }
  fs::remove_all(place);
}
