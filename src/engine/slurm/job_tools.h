#pragma once

#include <string>
#include <vector>

#include "engine/program.h"
#include "engine/slurm/allocation.h"

namespace lockstep::engine::slurm {

/// The programs of Slurm, for one run.
struct JobTools {
  std::string job;          ///< the id of the job that the driver is in
  std::string step;         ///< the name of the run's steps
  Environment env;          ///< environment_for_clients()
  bool binds_cpus = false;  ///< the site binds steps to cores unless they ask otherwise

  /// What a job is now. Throws EngineError.
  Job show(const std::string& id) const;
  /// Runs `words` as a step on this node.
  Program::Options on_node(const JobNode& node, const std::vector<std::string>& words) const;
  /// Runs a program of Slurm to its end, and returns its output. Throws EngineError.
  std::string run(std::vector<std::string> words, const std::string& cwd = "") const;
};

}  // namespace lockstep::engine::slurm
