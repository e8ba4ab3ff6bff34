#include "tune/function_trials.h"

#include <utility>

namespace lockstep::tune {
namespace {

/// To a loop in this process.
class NearLink final : public TrialLink {
 public:
  NearLink(TrialLoop& loop, Job& job) : loop_(loop), job_(job) {}
  bool report(const Value& result, const std::string& checkpoint, bool last) override {
    return loop_.report(job_, result, checkpoint, last);
  }
  bool interrupted() override { return loop_.interrupted(); }
  bool ending() override { return job_.ending; }

 private:
  TrialLoop& loop_;
  Job& job_;
};

}  // namespace

TrialLoop::RunTrial function_trials(TrialLoop& loop, std::function<Value(Session&)> function, FunctionTrial trial) {
  return [&loop, function = std::move(function), trial = std::move(trial)](Job& job) {
    NearLink link(loop, job);
    return run_function(function, link, job, trial);
  };
}

}  // namespace lockstep::tune
