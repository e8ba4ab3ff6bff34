#pragma once

#include <lockstep/engine_config.h>

#include <map>
#include <string>

namespace lockstep::train {

/// The engine that a run uses, with its options; never "auto". `env` is the environment:
///
/// "auto" is what LOCKSTEP_ENGINE says, otherwise Slurm inside an allocation of more than one node, otherwise local;
/// always local in a worker. LOCKSTEP_ENGINE_OPTIONS, a JSON object with fields of EngineConfig, has the options of
/// that engine; a field that `given` sets wins.
///
/// Throws ConfigError if those variables make no sense.
EngineConfig chosen_engine(const EngineConfig& given, const std::map<std::string, std::string>& env);

}  // namespace lockstep::train
