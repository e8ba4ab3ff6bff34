// Reads and writes checkpoints for the tests in Python.
//
//     torch_checkpoint_tool write OPTIMIZER DIRECTORY        a checkpoint after two steps
//     torch_checkpoint_tool step OPTIMIZER FROM DIRECTORY    one more step from a checkpoint of anybody's
//     torch_checkpoint_tool sum KEY FROM                     prints the sum of the tensor under a key

#include <iostream>
#include <lockstep/torch.h>

namespace {

using ::torch::Tensor;
namespace optim = ::torch::optim;

/// The model of the tests, with weights that do not depend on a random generator.
struct NetImpl : ::torch::nn::Module {
  NetImpl() {
    const ::torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(::torch::linspace(-1, 1, parameter.numel()).reshape(parameter.sizes()));
  }
  Tensor forward(const Tensor& x) { return last(norm(::torch::tanh(first(x)))); }
  ::torch::nn::Linear first{register_module("first", ::torch::nn::Linear(3, 4))};
  ::torch::nn::BatchNorm1d norm{register_module("norm", ::torch::nn::BatchNorm1d(4))};
  ::torch::nn::Linear last{register_module("last", ::torch::nn::Linear(4, 2))};
};
TORCH_MODULE(Net);

std::unique_ptr<optim::Optimizer> make(const std::string& kind, const std::vector<Tensor>& parameters) {
  if (kind == "SGD") return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
  if (kind == "Adam") return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.1));
  if (kind == "AdamW") return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.1));
  if (kind == "RMSprop") return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(0.1));
  if (kind == "Adagrad") return std::make_unique<optim::Adagrad>(parameters, optim::AdagradOptions(0.1));
  throw std::invalid_argument("unknown optimizer " + kind);
}

void step(Net& net, optim::Optimizer& optimizer, std::int64_t number) {
  optimizer.zero_grad();
  const auto x = (::torch::arange(15, ::torch::kFloat32) + static_cast<float>(number)).reshape({5, 3}).sin();
  net->forward(x).square().mean().backward();
  optimizer.step();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.at(0) == "sum") {
    const auto saved = lockstep::Checkpoint::from_directory(arguments.at(2));
    const auto tensor = lockstep::torch::get_tensor(saved, saved.to_dict()[arguments.at(1)]);
    std::cout << tensor.sum().item<double>() << "\n";
    return 0;
  }
  Net net;
  const auto optimizer = make(arguments.at(1), net->parameters());
  std::int64_t done = 0;
  if (arguments.at(0) == "write") {
    for (; done < 2; ++done) step(net, *optimizer, done);
  } else {
    const auto saved = lockstep::Checkpoint::from_directory(arguments.at(2));
    done = lockstep::torch::load(saved, *net, *optimizer)["done"].get<std::int64_t>();
    step(net, *optimizer, done++);
  }
  lockstep::torch::checkpoint(*net, *optimizer, {{"done", done}}).to_directory(arguments.back());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
