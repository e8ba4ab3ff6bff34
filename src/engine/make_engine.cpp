#include "engine/make_engine.h"

#include <lockstep/error.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/text.h"
#include "engine/cluster_engine.h"
#include "engine/local/local_engine.h"
#include "engine/ray/ray_launcher.h"
#include "engine/slurm/slurm_launcher.h"
#include "engine/ssh/ssh_launcher.h"

namespace lockstep::engine {
namespace {

std::vector<ssh::Host> hosts_of(const EngineConfig& config) {
  if (!config.hosts.empty()) return ssh::parse_hosts(config.hosts);
  if (config.hostfile.empty())
    throw ConfigError(
        "[engine.ssh] there are no hosts; give --hosts a:8,b:8 or --hostfile FILE, or EngineConfig(\"ssh\", "
        "hosts=\"a:8,b:8\")");
  std::ifstream file(config.hostfile);
  if (!file)
    throw ConfigError("[engine.ssh] the hostfile " + in_quotes(config.hostfile) + " cannot be read; correct the path");
  std::ostringstream text;
  text << file.rdbuf();
  return ssh::parse_hostfile(text.str(), config.hostfile);
}

/// The interpreter that runs this process, if one does: it has the same packages.
std::string interpreter() {
  std::ifstream file("/proc/self/cmdline");
  std::string first;
  std::getline(file, first, '\0');
  return std::filesystem::path(first).filename().string().starts_with("python") ? first : "python3";
}

}  // namespace

std::unique_ptr<Engine> make_engine(const EngineConfig& config) {
  if (config.kind == "local") return std::make_unique<LocalEngine>();
  return std::make_unique<ClusterEngine>(config, config.kind == "join" ? nullptr : make_launcher(config));
}

std::unique_ptr<Launcher> make_launcher(const EngineConfig& config) {
  if (config.kind == "ssh") {
    ssh::SshLauncher::Options options;
    options.hosts = hosts_of(config);
    options.nodes = config.nodes;
    options.head_works = config.head_works;
    return std::make_unique<ssh::SshLauncher>(std::move(options));
  }
  if (config.kind == "slurm") {
    slurm::SlurmLauncher::Options options;
    options.nodes = config.nodes;
    options.head_works = config.head_works;
    return std::make_unique<slurm::SlurmLauncher>(std::move(options));
  }
  if (config.kind == "ray") {
    ray::RayLauncher::Options options;
    options.helper = {interpreter(), "-m", "lockstep._ray_nodes"};
    options.address = config.address;
    options.nodes = config.nodes;
    options.patience = config.start_timeout;
    return std::make_unique<ray::RayLauncher>(std::move(options));
  }
  throw ConfigError("[EngineConfig] kind is " + in_quotes(config.kind) + "; it has no launcher");
}

}  // namespace lockstep::engine
