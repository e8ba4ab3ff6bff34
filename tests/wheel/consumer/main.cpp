#include <iostream>
#include <lockstep/lockstep.h>

void train(lockstep::Session& session) {
  for (int step = 0; step < 3; ++step) session.report({{"step", step}, {"workers", session.world_size()}});
}
LOCKSTEP_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  lockstep::init(argc, argv);
  const lockstep::Result result = lockstep::DataParallelTrainer(train, {.scaling = {.num_workers = 2}}).fit();
  std::cout << "step=" << result.metrics.at("step") << " workers=" << result.metrics.at("workers") << "\n";
}
