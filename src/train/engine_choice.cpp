#include "train/engine_choice.h"

#include <lockstep/error.h>

#include <cstdlib>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "engine/own_command.h"
#include "engine/slurm/allocation.h"
#include "store/run_settings.h"
#include "store/settings.h"
#include "sys/agent_mark.h"

namespace lockstep::train {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr const char* kEngine = "LOCKSTEP_ENGINE";
constexpr const char* kOptions = "LOCKSTEP_ENGINE_OPTIONS";

std::string text_in(const Environment& env, const char* name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

std::string automatic_kind(const Environment& env) {
  if (!text_in(env, sys::kAgentId).empty()) return "local";
  const std::string named = text_in(env, kEngine);
  if (!named.empty() && named != "auto") return named;
  if (const std::string problem = engine::slurm::many_tasks_problem(env, engine::own_command()); !problem.empty())
    throw ConfigError(problem);
  return engine::slurm::is_in_allocation_of_many(env) ? "slurm" : "local";
}

/// The options that were given beside LOCKSTEP_ENGINE.
EngineConfig options_in(const Environment& env) {
  EngineConfig options;
  const std::string text = text_in(env, kOptions);
  if (text.empty()) return options;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("[engine] " + std::string(kOptions) + " is " + in_quotes(text) + ": " + why +
                      "; write a JSON object with fields of EngineConfig, such as {\"nodes\": 4}");
  };
  Value given;
  try {
    given = parse_json(text, kOptions);
    if (!given.is_object()) refuse("it is not an object");
    store::read_engine_settings(given, options);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  return options;
}

/// Fields that are at their defaults get the value in `others`.
void fill(EngineConfig& engine, const EngineConfig& others) {
  const EngineConfig defaults;
  store::each_setting<EngineConfig>([&](const auto& setting) {
    auto& field = engine.*setting.field;
    if (field == defaults.*setting.field) field = others.*setting.field;
  });
}

}  // namespace

EngineConfig chosen_engine(const EngineConfig& given, const Environment& env) {
  EngineConfig engine = given;
  const bool is_in_worker = !text_in(env, sys::kAgentId).empty();
  if (engine.kind == "auto") engine.kind = automatic_kind(env);
  if (!is_in_worker && (engine.kind == text_in(env, kEngine) || text_in(env, kEngine).empty())) {
    const std::string kind = engine.kind;
    fill(engine, options_in(env));
    engine.kind = kind;
  }
  if (const auto problem = store::problem_of(engine))
    throw ConfigError("[engine] " + std::string(problem->setting) + " of the engine " + in_quotes(engine.kind) + " (" +
                      kEngine + ", " + kOptions + "): " + problem->rule);
  return engine;
}

}  // namespace lockstep::train
