#pragma once

#include <lockstep/config.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/hooks.h"
#include "driver/placement.h"
#include "driver/run_control.h"
#include "driver/service.h"
#include "driver/state.h"
#include "store/run_settings.h"
#include "sys/signals.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The program that workers are forked from, and what they find in it.
struct ProgramSpec {
  wire::Configure fork_server;
  std::vector<std::string> python_path;  ///< sys.path
  std::vector<std::string> argv;         ///< sys.argv of the process that called fit()
};

/// The training function.
struct FunctionSpec {
  std::string name;           ///< of a registered C++ function; empty in Python
  Bytes payload;              ///< what every worker gets: the pickled function and its configuration
  Bytes saved;                ///< kept in the run directory for restore(); may be empty
  bool save_payload = false;  ///< what is kept there is the payload itself, of which there need be no second copy
  std::string sha256;         ///< of what is kept, in hexadecimal digits

  const Bytes& kept() const { return save_payload ? payload : saved; }
};

/// What the function's framework needs.
struct BackendSpec {
  std::optional<store::BackendNeeds> needs;  ///< kept for restore()
  std::shared_ptr<Service> service;          ///< what workers need to find each other; may be none

  /// One that dies is started again alone.
  bool replaces_workers() const { return needs && needs->replace_workers; }
};

/// The run's part in a group of workers that stay from run to run. The defaults are for a run that has workers of its
/// own.
struct GroupSpec {
  bool only_deaths = false;   ///< failures of other kinds are not retried
  bool keep_workers = false;  ///< for the next run on the same agent; what the functions return comes back
  bool record = true;         ///< false: work that is no run of its own leaves no directory
};

/// What connects the run with the process that started it.
struct Wiring {
  std::function<Placement()> place;     ///< where the workers of the next attempt run; may throw
  sys::SignalWatch* signals = nullptr;  ///< borrowed; what it sees ends the run cleanly
  RunControl* control = nullptr;        ///< borrowed; may be none
  Hooks* hooks = nullptr;               ///< borrowed; may be none
};

/// Everything that a run needs, decided before anything starts.
struct RunPlan {
  std::string trainer = "DataParallelTrainer";
  TrainerOptions options;            ///< checked; run.name and run.storage_path filled in
  Value metadata = Value::object();  ///< the user's, kept in run.json
  bool restore = false;              ///< go on in the directory that is there
  ProgramSpec program;
  FunctionSpec function;
  BackendSpec backend;
  GroupSpec group;
  Wiring wiring;

  std::filesystem::path directory() const { return options.run.storage_path / options.run.name; }
  /// The policy for step().
  Policy policy() const;
  /// The settings as they are stored in run.json.
  Value settings() const;
};

}  // namespace lockstep::driver
