#include "tune/scheduler.h"

#include <lockstep/error.h>

#include <map>

#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

class FifoScheduler : public Scheduler {
 public:
  bool may_stop() const override { return false; }
  Decision on_result(TrialNumber, double, double, bool) override { return {}; }
};

}  // namespace

std::optional<TrialNumber> Scheduler::choose(const std::vector<TrialNumber>& fresh,
                                             const std::vector<TrialNumber>& paused) {
  if (!fresh.empty()) return fresh.front();
  if (!paused.empty()) return paused.front();
  return std::nullopt;
}

std::unique_ptr<Scheduler> make_scheduler(const Value& description, std::uint64_t seed) {
  const auto kind = description.is_object() ? description.find("kind") : description.end();
  if (!description.is_object() || kind == description.end() || !kind->is_string())
    throw ConfigError("[tune] the scheduler is " + description.dump() +
                      R"(; it must be a dict with a kind, such as {"kind": "asha"})");
  if (*kind == "fifo") {
    const Options checked(description, "fifo", {});
    return std::make_unique<FifoScheduler>();
  }
  if (*kind == "asha") return make_asha(description, seed);
  if (*kind == "hyperband") return make_hyperband(description, false);
  if (*kind == "hyperband_bohb") return make_hyperband(description, true);
  if (*kind == "median") return make_median(description);
  if (*kind == "pbt") return make_pbt(description, seed);
  if (*kind == "pbt_replay") return make_pbt_replay(description);
  throw ConfigError("[tune] no scheduler is of kind " + kind->dump() +
                    "; the kinds are fifo, asha, hyperband, hyperband_bohb, median, pbt, pbt_replay");
}

Value replay_policy(const Value& replay_log, TrialNumber trial) {
  struct Policy {
    Value config;
    Value changes = Value::array();
  };
  std::map<TrialNumber, Policy> policies;
  for (const Value& entry : replay_log) {
    const TrialNumber changed = entry.at("trial"), donor = entry.at("donor");
    const auto of_donor = policies.find(donor);
    // What the trial did before is lost with its state: it now has the donor's past.
    Policy policy = of_donor == policies.end() ? Policy{.config = entry.at("old_config")} : of_donor->second;
    policy.changes.push_back(Value::array({entry.at("donor_time"), entry.at("new_config")}));
    policies[changed] = std::move(policy);
  }
  const auto found = policies.find(trial);
  if (found == policies.end()) return nullptr;
  return {{"config", found->second.config}, {"policy", found->second.changes}};
}

}  // namespace lockstep::tune
