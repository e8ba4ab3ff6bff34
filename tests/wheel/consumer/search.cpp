#include <iostream>
#include <lockstep/tune.h>

int main(int argc, char** argv) {
  namespace tune = lockstep::tune;
  lockstep::init(argc, argv);
  const auto square = [](const lockstep::Value& config) {
    return config["x"].get<double>() * config["x"].get<double>();
  };
  lockstep::Tuner tuner(square, {.param_space = {{"x", tune::grid_search({3, -1, 2})}},
                                 .tune_config = {.metric = "loss", .mode = "min"}});
  std::cout << "x=" << tuner.fit().get_best_result().config["x"] << "\n";
}
