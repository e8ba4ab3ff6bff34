#pragma once

#include <lockstep/config.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/rendezvous.h"
#include "driver/state.h"
#include "sys/signals.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// Everything that a run needs, decided before anything starts.
struct RunPlan {
  std::string trainer = "DataParallelTrainer";
  TrainerOptions options;       ///< checked; run.name and run.storage_path filled in
  bool restore = false;         ///< go on in the directory that is there
  wire::Configure program;      ///< how workers come into being
  Bytes payload;                ///< what every worker gets: the pickled function and its configuration
  Bytes function_pkl;           ///< kept in the run directory for restore(); may be empty
  bool keep_payload = false;    ///< what is kept there is the payload itself, of which there need be no second copy
  std::string function_sha256;  ///< of what is kept, in hexadecimal digits
  std::string function;         ///< registered name of a C++ function; empty in Python
  std::vector<std::string> python_path;
  std::vector<std::string> argv;                             ///< sys.argv of the process that called fit()
  std::vector<std::map<std::string, std::string>> rank_env;  ///< by rank: added to program.env
  Value metadata = Value::object();                          ///< the user's, kept in run.json
  Value extra;                                               ///< for backends
  Value backend;                                             ///< kept for restore(), whatever it is
  std::optional<RendezvousOptions> rendezvous;               ///< what workers need to find each other
  bool replace_workers = false;                              ///< one that dies is started again alone
  std::vector<std::string> notes;                            ///< lines to show at the start
  sys::SignalWatch* signals = nullptr;                       ///< borrowed; what it sees ends the run cleanly
  bool keep_workers = false;  ///< for the next run on the same agent; what the functions return comes back
  bool record = true;         ///< false: work that is no run of its own leaves no directory

  const Bytes& kept_function() const { return keep_payload ? payload : function_pkl; }
  std::filesystem::path directory() const { return options.run.storage_path / options.run.name; }
  /// Hosts are as they were given, or one where none was.
  std::optional<RendezvousOptions> rendezvous_options() const;
  /// What step() goes by.
  Policy policy() const;
  /// The settings as run.json keeps them.
  Value settings() const;
};

}  // namespace lockstep::driver
