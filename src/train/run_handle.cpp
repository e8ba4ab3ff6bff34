#include <lockstep/run_handle.h>

#include "base/text.h"
#include "store/run_directory.h"
#include "train/active_run.h"

namespace lockstep {
namespace {

/// How to continue after a failure.
std::string advice(const Result& result) {
  if (!store::RunDirectory(result.path).exists()) return "";
  const std::string call =
      "lockstep::" + result.trainer + "::restore(" + in_quotes(result.path.string()) + ", function).fit()";
  return result.checkpoint ? "\nto continue from the last checkpoint: " + call
                           : "\nthere is no checkpoint yet; to start again: " + call;
}

}  // namespace

Result RunHandle::wait(std::optional<std::chrono::duration<double>> timeout) const {
  const Result& result = run_->wait(timeout).result;
  if (result.state == "failed")
    throw TrainingError(result.error + advice(result), std::make_shared<const Result>(result));
  return result;
}

void RunHandle::stop(bool checkpoint) const { run_->stop(checkpoint); }

std::string RunHandle::state() const { return run_->state(); }

Value RunHandle::metrics() const { return run_->metrics(); }

std::string RunHandle::name() const { return run_->name(); }

std::filesystem::path RunHandle::path() const { return run_->path(); }

std::optional<Value> RunHandle::next() const { return run_->next(); }

long RunHandle::dropped() const { return run_->dropped(); }

}  // namespace lockstep
