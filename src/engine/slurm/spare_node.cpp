#include "engine/slurm/spare_node.h"

#include <csignal>
#include <exception>

#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::engine::slurm {
namespace {

constexpr Seconds kGiveBackWithin{3.0};
/// Runs while the job has the node: until its standard input ends, which is a pipe of this process.
constexpr const char* kHold = "echo \"$SLURM_JOB_ID\"; exec cat >/dev/null";

}  // namespace

SpareNode::SpareNode(const JobTools& tools, const JobNode& lost, const std::vector<std::string>& used)
    : tools_(tools), name_("lockstep-" + random_hex(16)) {
  const Job job = tools.show(tools.job);
  Program::Options options;
  options.argv = {"salloc",
                  "--nodes=1",
                  "--ntasks=1",
                  "--cpus-per-task=" + std::to_string(lost.cpus),
                  "--exclude=" + joined(used, ","),
                  "--job-name=" + name_,
                  "--no-bell"};
  if (!lost.gpus.empty()) options.argv.push_back("--gres=" + lost.gpus);
  if (!job.partition.empty()) options.argv.push_back("--partition=" + job.partition);
  if (!job.qos.empty()) options.argv.push_back("--qos=" + job.qos);
  if (!job.account.empty()) options.argv.push_back("--account=" + job.account);
  if (!job.memory.empty()) options.argv.push_back(job.memory);
  if (!job.time_limit.empty()) options.argv.push_back("--time=" + job.time_limit);
  for (const char* word : {"sh", "-c", kHold}) options.argv.emplace_back(word);
  options.env = tools.env;
  options.keep_input = true;
  salloc_ = std::make_unique<Program>(options);
}

SpareNode::~SpareNode() {
  try {
    salloc_->close_input();
    if (salloc_->output().empty()) salloc_->signal(SIGTERM);  // it waits in the queue
    if (!salloc_->ended(now() + ticks(kGiveBackWithin))) tools_.run({"scancel", "--quiet", "--name=" + name_});
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

std::optional<JobNode> SpareNode::look() {
  const std::string said = salloc_->output();
  const auto end = said.find('\n');
  if (end == std::string::npos || salloc_->ended()) return std::nullopt;
  return tools_.show(said.substr(0, end)).nodes.front();
}

std::string SpareNode::refused() {
  const auto status = salloc_->ended();
  if (!status) return "";
  const std::string said = salloc_->last_lines();
  return "salloc ended with " + to_string(*status) + (said.empty() ? "" : ": " + said);
}

}  // namespace lockstep::engine::slurm
