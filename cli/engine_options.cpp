#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "commands.h"
#include "python.h"
#include "store/run_settings.h"
#include "store/settings.h"

namespace lockstep::cli {
namespace {

std::string absolute_path(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

EngineConfig config_of(const EngineOptions& options) {
  EngineConfig config;
  const bool has_hosts = !options.hosts.empty() || !options.hostfile.empty();
  config.kind = options.engine.empty() ? (has_hosts ? "ssh" : "auto") : options.engine;
  std::istringstream hosts(options.hosts);
  for (std::string host; std::getline(hosts, host, ',');)
    if (!host.empty()) config.hosts.push_back(host);
  config.hostfile = absolute_path(options.hostfile);
  config.address = options.address;
  config.secret_file = absolute_path(options.secret_file);
  config.network_interface = options.network_interface;
  config.nodes = options.nodes;
  config.port = options.port;
  using Duration = std::chrono::duration<double>;
  if (options.node_timeout) config.node_timeout = Duration(*options.node_timeout);
  if (options.start_timeout) config.start_timeout = Duration(*options.start_timeout);
  if (options.replace_timeout) config.replace_timeout = Duration(*options.replace_timeout);
  if (options.head_is_idle) config.head_works = false;
  return config;
}

}  // namespace

void set_engine(const EngineOptions& options) {
  const EngineConfig config = config_of(options);
  if (config == EngineConfig{}) return;
  if (const auto problem = store::problem_of(config))
    throw UsageError("[run] " + std::string(problem->setting) + ": " + problem->rule);
  const Value defaults = store::to_value(EngineConfig{}), given = store::to_value(config);
  Value changed = Value::object();
  for (const auto& [name, value] : given.items())
    if (name != "kind" && value != defaults.at(name)) changed[name] = value;
  if (config.kind != "auto" || !options.engine.empty()) ::setenv("LOCKSTEP_ENGINE", config.kind.c_str(), 1);
  ::setenv("LOCKSTEP_ENGINE_OPTIONS", to_json(changed).c_str(), 1);
}

void check_cluster() { become_python("cluster", {"-m", "lockstep._cluster_check"}); }

}  // namespace lockstep::cli
