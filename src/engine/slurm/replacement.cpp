#include "engine/slurm/replacement.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"

namespace lockstep::engine::slurm {
namespace {

namespace fs = std::filesystem;

/// A node that runs no step within this time is taken for dead, for now.
constexpr Seconds kProbeWithin{3.0};
constexpr Seconds kPause{1.0};
/// Until Slurm is asked again for a node that it has refused.
constexpr Seconds kRequestPause{5.0};

/// A directory for the scripts that scontrol writes into its own when a job changes its size.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw EngineError("[engine.slurm] no temporary directory can be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::optional<JobNode> Replacement::look() {
  if (is_back()) return lost_;
  return may_request_ ? spare() : std::nullopt;
}

/// Whether the lost node runs steps.
bool Replacement::is_back() {
  if (!probe_) {
    if (now() < next_probe_) return false;
    probe_ = std::make_unique<Program>(tools_.on_node(lost_, {"true"}));
    probe_end_ = now() + ticks(kProbeWithin);
    return false;
  }
  const auto status = probe_->ended();
  if (!status && now() < probe_end_) return false;
  // srun's code is 0 too for a node that fails meanwhile.
  const bool is_well = status == sys::ExitStatus{} && probe_->errors().find("ailure") == std::string::npos;
  log_info("[engine.slurm] " + lost_.name + (is_well ? " runs job steps " : " runs no job step ") +
           probe_->last_lines());
  probe_.reset();
  next_probe_ = now() + ticks(kPause);
  may_request_ = !is_well;
  return is_well;
}

std::optional<JobNode> Replacement::spare() {
  if (!spare_) {
    if (now() < next_request_) return std::nullopt;
    spare_ = std::make_unique<SpareNode>(tools_, lost_, used_);
    return std::nullopt;
  }
  if (const std::string why = spare_->refused(); !why.empty()) {
    log_warning("[engine.slurm] there is no node in place of " + lost_.name + ": " + why);
    spare_.reset();
    next_request_ = now() + ticks(kRequestPause);
    return std::nullopt;
  }
  auto node = spare_->look();
  if (!node) return std::nullopt;
  give_up_lost();
  taken_ = std::move(spare_);
  return node;
}

/// So that the job does not end when Slurm notices that the node is down.
void Replacement::give_up_lost() const {
  if (lost_.job != tools_.job) return;
  try {
    const Scratch scratch;
    std::vector<std::string> survivors;
    const Job job = tools_.show(tools_.job);
    for (const JobNode& node : job.nodes)
      if (node.name != lost_.name) survivors.push_back(node.name);
    if (survivors.size() == job.nodes.size()) return;
    tools_.run({"scontrol", "update", "jobid=" + tools_.job, "NodeList=" + joined(survivors, ",")}, scratch.path());
  } catch (const EngineError& error) {
    log_warning(std::string(error.what()) + "; the job still has the lost node " + lost_.name +
                ", and Slurm may end the whole job when it notices");
  }
}

}  // namespace lockstep::engine::slurm
