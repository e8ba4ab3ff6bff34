#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <lockstep/torch.h>
#include <string>

namespace lockstep::tests {

/// A directory of the test's own, gone when it ends.
class Runs : public testing::Test {
 protected:
  Runs() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_torch_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    directory_ = pattern;
  }
  ~Runs() override { std::filesystem::remove_all(directory_); }

  /// Options of a quiet run in that directory.
  TrainerOptions options(int workers, Value config = Value::object(), int max_failures = 0) const {
    TrainerOptions made{.config = std::move(config), .scaling = {.num_workers = workers}};
    made.run.storage_path = directory_;
    made.run.verbose = 0;
    made.run.failure.max_failures = max_failures;
    return made;
  }

  std::filesystem::path directory_;
};

/// The bytes of all parameters and buffers, in order.
inline std::string fingerprint(const ::torch::nn::Module& module) {
  std::string bytes;
  const auto add = [&](const ::torch::Tensor& tensor) {
    const auto dense = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  };
  for (const auto& tensor : module.parameters()) add(tensor);
  for (const auto& tensor : module.buffers()) add(tensor);
  return std::to_string(std::hash<std::string>()(bytes));
}

}  // namespace lockstep::tests
