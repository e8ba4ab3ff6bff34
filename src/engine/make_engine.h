#pragma once

#include <lockstep/engine_config.h>

#include <memory>

#include "engine/engine.h"
#include "engine/launcher.h"

namespace lockstep::engine {

/// The engine of this kind, which is not "auto". Throws ConfigError.
std::unique_ptr<Engine> make_engine(const EngineConfig& config);

/// The launcher of "slurm", "ray" or "ssh". Throws ConfigError.
std::unique_ptr<Launcher> make_launcher(const EngineConfig& config);

}  // namespace lockstep::engine
