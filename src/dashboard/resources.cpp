#include "dashboard/resources.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "dashboard/page_json.h"
#include "sys/node.h"
#include "sys/process.h"

namespace lockstep::dashboard {
namespace {

std::string proc(int pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

std::string name_of_process(int pid) {
  std::ifstream file(proc(pid, "comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

/// Its share of the memory that it has in common with others counts as its own.
std::int64_t memory_of(int pid) {
  std::ifstream file(proc(pid, "smaps_rollup"));
  for (std::string word; file >> word;)
    if (std::int64_t kilobytes = 0; word == "Pss:" && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

std::optional<Value> usage_of(int pid) {
  std::ifstream file(proc(pid, "stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::vector<std::string> after;  // field 3 of proc(5), the state, is the first
  for (std::string field; fields >> field;) after.push_back(field);
  if (after.size() < 18) return std::nullopt;
  const double ticks = std::stod(after[11]) + std::stod(after[12]);
  return Value{{"pid", pid},
               {"rank", nullptr},
               {"state", after[0]},
               {"cpu_seconds", ticks / static_cast<double>(::sysconf(_SC_CLK_TCK))},
               {"memory", memory_of(pid)},
               {"threads", std::stoi(after[17])}};
}

/// The agents' children are workers, or fork servers, whose children are.
std::vector<int> workers_of(int driver) {
  std::vector<int> workers;
  for (const int agent : sys::children(driver)) {
    if (name_of_process(agent) != "lockstep-agent") continue;
    for (const int child : sys::children(agent)) {
      if (name_of_process(child) != "lockstep-forks") {
        workers.push_back(child);
        continue;
      }
      for (const int worker : sys::children(child)) workers.push_back(worker);
    }
  }
  return workers;
}

}  // namespace

std::string resources_json(const store::RunView& view) {
  Value workers = Value::array();
  if (view.driver == store::DriverState::alive) {
    const int first = number_in<int>(view.record.metrics, "pid");
    for (const int pid : workers_of(view.record.driver.pid)) {
      auto usage = usage_of(pid);
      if (!usage) continue;
      if (pid == first) (*usage)["rank"] = 0;
      workers.push_back(std::move(*usage));
    }
  }
  const sys::Memory memory = sys::memory();
  return page_json(
             {{"seconds", Seconds(now().time_since_epoch()).count()},
              {"workers", std::move(workers)},
              {"node", {{"cores", sys::usable_cores()}, {"memory", memory.total}, {"available", memory.available}}}}) +
         "\n";
}

}  // namespace lockstep::dashboard
