#pragma once

#include <cstdint>
#include <lockstep/value.h>
#include <optional>
#include <string>
#include <vector>

#include "store/run_view.h"

namespace lockstep::dashboard {

/// A committed checkpoint as the page shows it. Nothing of it is unpickled, and no array is read.
struct ShownCheckpoint {
  int seq = 0;
  std::optional<double> score;  ///< as the run compares them; nothing if only an array holds it
  std::int64_t size = 0;        ///< bytes of all files
  std::size_t files = 0;
  int attempt = 0, world_size = 0;
  double created = 0;
  Value metrics = Value::object();
  std::string problem;  ///< why it cannot be used; empty if it can
};

/// The run's checkpoints, lowest seq first, read through `files`. Throws StorageError if the run's directory cannot be
/// listed.
std::vector<ShownCheckpoint> shown_checkpoints(const store::RunView& view, sys::Files& files);

}  // namespace lockstep::dashboard
