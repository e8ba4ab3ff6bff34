#include "tune/policy_files.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "sys/files.h"

namespace lockstep::tune {

std::vector<std::pair<std::string, std::string>> policy_files(const Experiment& experiment) {
  std::vector<std::pair<std::string, std::string>> files;
  const Value log = experiment.replay_log();
  if (log.empty()) return files;
  const auto add_line = [](std::string& text, const Value& line) { text += to_json(line) + "\n"; };
  std::string all;
  std::set<TrialNumber> changed;
  for (const Value& each : log) {
    add_line(all, Value::array({each.at("trial"), each.at("donor"), each.at("time"), each.at("donor_time"),
                                each.at("old_config"), each.at("new_config")}));
    changed.insert(each.at("trial").get<TrialNumber>());
  }
  files.emplace_back("pbt_global.txt", std::move(all));
  for (const TrialNumber number : changed) {
    const Value found = replay_policy(log, number);
    if (found.is_null()) continue;
    std::string text;
    Value before = found.at("config");
    const std::string name = std::to_string(number);
    for (const Value& change : found.at("policy")) {
      add_line(text, Value::array({name, name, change.at(0), change.at(0), before, change.at(1)}));
      before = change.at(1);
    }
    files.emplace_back("pbt_policy_" + experiment.trial(number).id + ".txt", std::move(text));
  }
  return files;
}

Policy read_policy(const std::string& file) {
  constexpr const char* kWho = "[PopulationBasedTrainingReplay] ";
  const char* home = std::getenv("HOME");
  const std::string path = file.starts_with("~/") && home != nullptr ? home + file.substr(1) : file;
  Policy policy{Value(), Value::array()};
  try {
    const auto bytes = sys::files().read_file(path);
    std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (!rest.empty()) {
      const std::string_view text = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const Value line = parse_json(text, path);
      if (!line.is_array() || line.size() != 6)
        throw ConfigError(kWho + path + " is not a policy; give a pbt_policy_<id>.txt");
      if (policy.config.is_null()) policy.config = line[4];
      policy.changes.push_back(Value::array({line[2], line[5]}));
    }
  } catch (const StorageError& error) {
    throw ConfigError(kWho + path + " cannot be read: " + error.what());
  }
  if (policy.changes.empty()) throw ConfigError(kWho + path + " is not a policy; give a pbt_policy_<id>.txt");
  std::stable_sort(policy.changes.begin(), policy.changes.end(), [](const Value& a, const Value& b) {
    return number_of(a[0]).value_or(0) < number_of(b[0]).value_or(0);
  });
  return policy;
}

}  // namespace lockstep::tune
