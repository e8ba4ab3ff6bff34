#include "tune/computed_values.h"

#include <lockstep/error.h>
#include <lockstep/tune/space.h>

#include <deque>
#include <mutex>
#include <utility>

#include "base/text.h"

namespace lockstep::tune {
namespace {

constexpr const char* kSampleFrom = "sample_from";

/// The functions that sample_from() was given, by the ids in its values. They stay: a space may be copied anywhere.
class Registry {
 public:
  std::size_t add(ComputeValue function) {
    const std::lock_guard lock(mutex_);
    functions_.push_back(std::move(function));
    return functions_.size() - 1;
  }
  ComputeValue at(std::size_t id) const {
    const std::lock_guard lock(mutex_);
    if (id >= functions_.size())
      throw ConfigError("[tune] the function of a sample_from() is missing; give the param_space again");
    return functions_[id];
  }

 private:
  mutable std::mutex mutex_;
  std::deque<ComputeValue> functions_;
};

Registry& registry() {
  static Registry made;
  return made;
}

bool is_computed(const Value& value) {
  const auto domain = value.is_object() ? value.find("$domain") : value.end();
  return value.is_object() && domain != value.end() && domain->value("kind", "") == kSampleFrom;
}

/// Calls `see` for each place of a computed value, in their order.
template <class See>
void for_each_computed(Value& value, const std::string& name, const See& see) {
  if (is_computed(value)) return see(value, name);
  if (!value.is_structured()) return;
  for (const auto& item : value.items())
    for_each_computed(item.value(), name.empty() ? item.key() : name + "/" + item.key(), see);
}

class ComputingScheduler final : public Scheduler {
 public:
  ComputingScheduler(std::unique_ptr<Scheduler> inner, std::vector<ComputeValue> functions)
      : inner_(std::move(inner)), functions_(std::move(functions)) {}

  bool may_stop() const override { return inner_->may_stop(); }
  Value complete_config(TrialNumber trial, Value config) const override {
    return with_computed_values(functions_, inner_->complete_config(trial, std::move(config)));
  }
  void on_added(TrialNumber trial, const Value& config) override { inner_->on_added(trial, config); }
  Decision on_result(TrialNumber trial, double time, double value, bool has_checkpoint) override {
    return inner_->on_result(trial, time, value, has_checkpoint);
  }
  void on_checkpoint(TrialNumber trial) override { inner_->on_checkpoint(trial); }
  void on_ended(TrialNumber trial, bool failed) override { inner_->on_ended(trial, failed); }
  void more_to_come(bool more) override { inner_->more_to_come(more); }
  std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                    const std::vector<TrialNumber>& paused) override {
    return inner_->choose(fresh, paused);
  }
  std::vector<TrialNumber> take_dropped() override { return inner_->take_dropped(); }
  std::optional<Exploit> take_exploit(TrialNumber trial) override { return inner_->take_exploit(trial); }
  std::vector<TrialNumber> donors() const override { return inner_->donors(); }
  Value replay_log() const override { return inner_->replay_log(); }

 private:
  std::unique_ptr<Scheduler> inner_;
  std::vector<ComputeValue> functions_;
};

}  // namespace

Value sample_from(std::function<Value(const Value& spec)> function) {
  if (!function) throw ConfigError("[tune] sample_from() got no function");
  return {{"$domain", {{"kind", kSampleFrom}, {"id", registry().add(std::move(function))}}}};
}

ComputedValues ComputedValues::of(const Value& param_space) {
  ComputedValues found{param_space, {}};
  for_each_computed(found.space, "", [&](Value& place, const std::string&) {
    Value& id = place["$domain"]["id"];
    found.functions.push_back(registry().at(id.get<std::size_t>()));
    id = found.functions.size() - 1;
  });
  return found;
}

Value with_computed_values(const std::vector<ComputeValue>& functions, Value config) {
  for (;;) {
    std::vector<std::pair<Value*, Value>> made;
    std::string left, why;
    const Value spec = {{"config", config}};
    for_each_computed(config, "", [&](Value& place, const std::string& name) {
      const auto id = place["$domain"]["id"].get<std::size_t>();
      if (id >= functions.size())
        throw ConfigError("[tune] the function of sample_from() for " + in_quotes(name) + " is missing");
      try {
        Value value = functions[id](spec);
        if (is_computed(value)) throw ConfigError("it is another value that is not there yet");
        made.emplace_back(&place, std::move(value));
      } catch (const std::exception& error) {  // it may need a value that is not there yet
        left += (left.empty() ? "" : ", ") + in_quotes(name);
        why = error.what();
      }
    });
    if (made.empty() && !left.empty()) throw ConfigError("[tune] sample_from() of " + left + " failed: " + why);
    if (made.empty()) return config;
    for (auto& [place, value] : made) *place = std::move(value);
  }
}

std::unique_ptr<Scheduler> computing(std::unique_ptr<Scheduler> inner, std::vector<ComputeValue> functions) {
  return std::make_unique<ComputingScheduler>(std::move(inner), std::move(functions));
}

}  // namespace lockstep::tune
