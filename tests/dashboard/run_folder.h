#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::dashboard {

/// A directory of runs that ends with the test.
class RunFolder {
 public:
  RunFolder()
      : root(std::filesystem::canonical(testing::TempDir()) /
             ("dashboard_" + std::to_string(::getpid()) + "_" + std::to_string(count_++))) {
    std::filesystem::create_directories(root);
  }
  ~RunFolder() { std::filesystem::remove_all(root); }

  void write(const std::string& name, std::string_view text, std::ios::openmode mode = std::ios::trunc) const {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, mode | std::ios::binary) << text;
  }
  /// A run.json as the driver writes it: renamed into place.
  void write_record(const std::string& run, const std::string& fields) const {
    write(run + "/run.json.partial", R"({"version": 1, "trainer": "TorchTrainer", "num_workers": 2, )" + fields + "}");
    std::filesystem::rename(root / run / "run.json.partial", root / run / "run.json");
  }
  void add_run(const std::string& run, const std::string& state = "finished") const {
    write_record(run, R"("state": ")" + state + R"(", "created": 100, "updated": 110, "finished": 110)");
  }

  const std::filesystem::path root;

 private:
  static inline int count_ = 0;
};

}  // namespace lockstep::dashboard
