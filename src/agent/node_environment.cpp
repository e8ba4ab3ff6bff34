#include "agent/node_environment.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/text.h"
#include "sys/environment.h"

namespace lockstep::agent {
namespace {

using namespace std::string_view_literals;

/// Beginnings of names.
constexpr std::array kTravel{
    "LOCKSTEP_"sv,   "PYTHON"sv,  "OMP_"sv,    "MKL_"sv,   "OPENBLAS_"sv, "NUMEXPR_"sv, "KMP_"sv,
    "CUDA_"sv,       "CUBLAS_"sv, "CUDNN_"sv,  "NCCL_"sv,  "GLOO_"sv,     "TORCH"sv,    "PYTORCH_"sv,
    "TF_"sv,         "XLA_"sv,    "JAX_"sv,    "KERAS_"sv, "HOROVOD_"sv,  "HF_"sv,      "TRANSFORMERS_"sv,
    "TOKENIZERS_"sv, "WANDB_"sv,  "MLFLOW_"sv, "RAY_"sv,   "TRAIN_"sv,    "SGD_"sv};

std::string text_of(const Value& begin, const char* key) {
  const auto found = begin.find(key);
  return found != begin.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool travels(const std::string& name) {
  return std::ranges::any_of(kTravel, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::map<std::string, std::string> environment_here(const std::map<std::string, std::string>& drivers) {
  auto own = sys::environment();
  for (const auto& [name, value] : drivers)
    if (travels(name)) own.insert_or_assign(name, value);
  return own;
}

std::string not_shared(const wire::StartAttempt& start, const std::string& name) {
  for (const wire::WorkerSpec& worker : start.workers) {
    const std::string storage = text_of(worker.begin, "storage"), id = text_of(worker.begin, "trial_id");
    if (storage.empty() || id.empty()) continue;
    // The driver wrote it a moment ago. Another run of the same name has another id.
    std::ifstream file(std::filesystem::path(storage) / "run.json");
    std::ostringstream text;
    text << file.rdbuf();
    if (text.str().find(id) != std::string::npos) return "";
    return "[storage] node " + name + " does not see the run directory " + in_quotes(storage) +
           ", so its workers cannot write checkpoints; choose a storage_path on a file system that all nodes share, or "
           "CheckpointConfig(num_to_keep=0)";
  }
  return "";
}

}  // namespace lockstep::agent
