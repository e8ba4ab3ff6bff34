// Estimates pi on four workers, without any framework: every rank throws its own darts, reports, and saves its state.
//
//     example_monte_carlo [RESULTS_DIRECTORY]
//
// prints the run's progress and, at its end, something like
//
//     pi is about 3.1414 after 5 rounds on 4 workers; results in .../pi_2026-01-31_12-59-59

#include <cmath>
#include <iostream>
#include <lockstep/lockstep.h>
#include <random>

void estimate_pi(lockstep::Session& session) {
  const auto rounds = session.config()["rounds"].get<int>();
  const auto darts = session.config()["darts_per_round"].get<long>();
  int first = 0;
  long inside = 0;
  if (auto checkpoint = session.checkpoint()) {
    const lockstep::Value saved = checkpoint->to_dict();
    first = saved["round"].get<int>() + 1;
    inside = saved["inside"].get<long>();
  }
  for (int round = first; round < rounds; ++round) {
    std::mt19937_64 random(static_cast<unsigned long>(round * session.world_size() + session.world_rank()));
    std::uniform_real_distribution<double> side(0, 1);
    for (long dart = 0; dart < darts; ++dart) inside += std::hypot(side(random), side(random)) < 1;
    const double pi = 4.0 * static_cast<double>(inside) / static_cast<double>(darts * (round + 1));
    session.report({{"round", round}, {"pi", pi}},
                   lockstep::Checkpoint::from_dict({{"round", round}, {"inside", inside}}));
  }
  session.barrier();
}
LOCKSTEP_TRAIN_FUNCTION(estimate_pi);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  lockstep::TrainerOptions options{.config = {{"rounds", 5}, {"darts_per_round", 200000}},
                                   .scaling = {.num_workers = 4}};
  if (argc > 1) options.run.storage_path = argv[1];
  options.run.checkpoint.num_to_keep = 2;
  const lockstep::Result result = lockstep::DataParallelTrainer(estimate_pi, options).fit();
  const double pi = result.metrics["pi"].get<double>();
  std::cout << "pi is about " << pi << " after " << result.metrics["training_iteration"]
            << " rounds on 4 workers; results in " << result.path.string() << "\n";
  return std::abs(pi - 3.14159) < 0.05 && result.checkpoint && result.checkpoint->to_dict()["round"] == 4 ? 0 : 1;
}
