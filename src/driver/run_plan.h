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
#include "driver/validations.h"
#include "store/run_settings.h"
#include "sys/signals.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The program that workers are forked from, and their sys.path and sys.argv.
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
  bool save_payload = false;  ///< keep the payload itself, without a second copy in memory
  std::string sha256;         ///< of kept(), in hexadecimal digits

  const Bytes& kept() const { return save_payload ? payload : saved; }
};

/// What the function's framework needs.
struct BackendSpec {
  std::optional<store::BackendNeeds> needs;  ///< kept for restore()
  std::shared_ptr<Service> service;          ///< what workers need to find each other; may be none

  /// A worker that dies is restarted alone.
  bool replaces_workers() const { return needs && needs->replace_workers; }
};

/// How the run uses a group of workers that stay alive between runs. The defaults are for a run that starts its own
/// workers.
struct GroupSpec {
  bool only_deaths = false;   ///< failures of other kinds are not retried
  bool keep_workers = false;  ///< for the next run on the same agent; RunOutcome has what the functions return
  bool record = true;         ///< false: the run leaves no directory
};

/// What connects the run with the process that started it.
struct Wiring {
  /// Where the workers of the next attempt run; nothing: nodes may come in a moment, ask again. May throw.
  std::function<std::optional<Placement>()> place;
  /// With how many workers it would be called now; for elastic runs. May throw.
  std::function<int()> room;
  /// Places no more workers on this node, which will be taken away.
  std::function<void(int node)> leave;
  /// Gives the run's resources to others when its workers have ended, but it has not. May be empty.
  std::function<void()> release;
  sys::SignalWatch* signals = nullptr;  ///< borrowed; a signal that it sees ends the run cleanly
  RunControl* control = nullptr;        ///< borrowed; may be none
  Hooks* hooks = nullptr;               ///< borrowed; may be none
  Validations* validations = nullptr;   ///< borrowed; may be none
};

/// Everything that a run needs, decided before anything starts.
struct RunPlan {
  std::string trainer = "DataParallelTrainer";
  TrainerOptions options;            ///< checked; run.name and run.storage_path filled in
  Value metadata = Value::object();  ///< the user's, kept in run.json
  bool restore = false;              ///< continue in the existing directory
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
