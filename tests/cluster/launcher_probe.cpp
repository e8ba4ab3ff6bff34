/// Lets a test in Python use a Launcher: launcher_probe KIND OPTIONS. Reads a command a line, in JSON, and answers each
/// with a line. Its launcher is destroyed when its standard input ends.

#include <lockstep/error.h>
#include <poll.h>

#include <iostream>
#include <memory>

#include "base/clock.h"
#include "base/json.h"
#include "engine/ray/ray_launcher.h"
#include "engine/slurm/slurm_launcher.h"
#include "engine/ssh/ssh_launcher.h"

namespace lockstep::engine {
namespace {

template <class T>
std::optional<T> optional_in(const Value& options, const char* key) {
  return options.contains(key) ? std::optional(options.at(key).get<T>()) : std::nullopt;
}

std::unique_ptr<Launcher> make(const std::string& kind, const Value& given) {
  if (kind == "ssh") {
    ssh::SshLauncher::Options options;
    options.hosts = ssh::parse_hosts(given.at("hosts").get<std::string>());
    options.nodes = optional_in<int>(given, "nodes");
    options.head_works = optional_in<bool>(given, "head_works");
    return std::make_unique<ssh::SshLauncher>(options);
  }
  if (kind == "slurm") {
    slurm::SlurmLauncher::Options options;
    options.nodes = optional_in<int>(given, "nodes");
    options.head_works = optional_in<bool>(given, "head_works");
    return std::make_unique<slurm::SlurmLauncher>(options);
  }
  ray::RayLauncher::Options options;
  options.helper = given.at("helper").get<std::vector<std::string>>();
  options.address = given.value("address", "");
  options.nodes = optional_in<int>(given, "nodes");
  options.workers = optional_in<int>(given, "workers");
  options.strategy = given.value("strategy", "PACK");
  options.resources_per_worker = given.value("resources_per_worker", options.resources_per_worker);
  options.patience = Seconds(given.value("patience", 60.0));
  return std::make_unique<ray::RayLauncher>(options);
}

Value described(const LaunchNodes::Node& node) {
  return {{"name", node.name}, {"cpus", node.cpus ? Value(*node.cpus) : Value(nullptr)}};
}

/// Asks again until there is something, as an engine does.
template <class Ask>
Value asked(double patience, Ask&& ask) {
  for (const Instant deadline = now() + ticks(Seconds(patience));; ::poll(nullptr, 0, 20)) {
    Value found = ask();
    if (!found.is_null() || now() >= deadline) return found;
  }
}

Value answer(Launcher& launcher, const Value& command) {
  const auto what = command.at("do").get<std::string>();
  if (what == "nodes") {
    const LaunchNodes nodes = launcher.nodes();
    Value others = Value::array();
    for (const auto& node : nodes.others) others.push_back(described(node));
    return {{"others", others},
            {"head_works", nodes.head_works},
            {"head_cpus", nodes.head_cpus ? Value(*nodes.head_cpus) : Value(nullptr)}};
  }
  if (what == "launch") {
    launcher.launch({command.at("node").get<std::string>(), {}},
                    {command.at("argv").get<std::vector<std::string>>(), command.at("secret").get<std::string>()});
    return true;
  }
  if (what == "ended")
    return asked(command.at("wait").get<double>(), [&]() -> Value {
      Value all = Value::object();
      for (const auto& each : launcher.ended()) all[each.node] = each.why;
      return all.empty() ? Value(nullptr) : all;
    });
  if (what == "replace")
    return asked(command.at("wait").get<double>(), [&]() -> Value {
      const auto node = launcher.replace(command.at("node").get<std::string>());
      return node ? described(*node) : Value(nullptr);
    });
  launcher.stop();
  return true;
}

}  // namespace
}  // namespace lockstep::engine

int main(int, char** argv) {
  using namespace lockstep;
  const auto launcher = engine::make(argv[1], parse_json(argv[2], "the options"));
  for (std::string line; std::getline(std::cin, line);) {
    Value said;
    try {
      said["answer"] = engine::answer(*launcher, parse_json(line, "a command"));
    } catch (const ConfigError& error) {
      said["config_error"] = error.what();
    } catch (const std::exception& error) {
      said["error"] = error.what();
    }
    std::cout << to_json(said) << std::endl;
  }
}
