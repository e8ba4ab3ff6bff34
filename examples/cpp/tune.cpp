// Finds the minimum of a function with a searcher, and the best learning rate of a training function on two workers:
//
//     example_tune [RESULTS_DIRECTORY]
//
// prints something like
//
//     branin: 0.399 at x=3.14 y=2.28, the best of 100 trials
//     training: 0.31 with lr=0.41; 3 of 8 trials ran to the end; results in .../DataParallelTrainer_...

#include <cmath>
#include <cstdio>
#include <lockstep/tune.h>
#include <numbers>

namespace tune = lockstep::tune;
using lockstep::Value;

/// In a thread of this process: takes a configuration and returns its metrics.
Value branin(const Value& config) {
  const double pi = std::numbers::pi, x = config["x"], y = config["y"];
  const double term = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
  return {{"loss", term * term + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10}};
}

/// On workers: reports each epoch with a checkpoint, from which it continues if it is interrupted.
void train(lockstep::Session& session) {
  const double lr = session.config()["lr"];
  double weight = 10;
  int epoch = 0;
  if (const auto checkpoint = session.checkpoint()) {
    weight = checkpoint->to_dict()["weight"];
    epoch = checkpoint->to_dict()["epoch"].get<int>() + 1;
  }
  for (; epoch < session.config()["epochs"] && !session.should_stop(); ++epoch) {
    weight -= lr * weight;
    session.report({{"loss", std::abs(weight)}, {"epoch", epoch}},
                   lockstep::Checkpoint::from_dict({{"weight", weight}, {"epoch", epoch}}));
  }
}
LOCKSTEP_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  lockstep::RunConfig run;
  if (argc > 1) run.storage_path = argv[1];

  lockstep::Tuner search(
      branin,
      {.param_space = {{"x", tune::uniform(-5, 10)}, {"y", tune::uniform(0, 15)}},
       .tune_config = {.metric = "loss", .mode = "min", .num_samples = 100, .search_alg = tune::TPESearch{}, .seed = 1},
       .run_config = run});
  const lockstep::Result best = search.fit().get_best_result();
  std::printf("branin: %.3f at x=%.2f y=%.2f, the best of 100 trials\n", best.metrics["loss"].get<double>(),
              best.config["x"].get<double>(), best.config["y"].get<double>());

  const lockstep::DataParallelTrainer trainer(train, {.config = {{"epochs", 9}}, .scaling = {.num_workers = 2}});
  lockstep::Tuner training(
      trainer, {.param_space = {{"lr", tune::loguniform(1e-3, 1)}},
                .tune_config = {.metric = "loss",
                                .mode = "min",
                                .num_samples = 8,
                                .scheduler = tune::ASHAScheduler{.max_t = 9, .grace_period = 1, .reduction_factor = 3},
                                .seed = 1},
                .run_config = run});
  const lockstep::ResultGrid grid = training.fit();
  const lockstep::Result trained = grid.get_best_result();
  int whole = 0;
  for (const lockstep::Result& result : grid) whole += result.metrics["training_iteration"] == 9;
  std::printf("training: %.2g with lr=%.2g; %d of 8 trials ran to the end; results in %s\n",
              trained.metrics["loss"].get<double>(), trained.config["lr"].get<double>(), whole,
              grid.experiment_path().c_str());
  return best.metrics["loss"].get<double>() < 1.5 && grid.num_errors() == 0 && trained.checkpoint ? 0 : 1;
}
