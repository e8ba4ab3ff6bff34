#include "train/driven_run.h"

#include <atomic>
#include <utility>

namespace lockstep::train {
namespace {

std::vector<std::uint64_t>& driven_here() {
  thread_local std::vector<std::uint64_t> driven;
  return driven;
}

std::uint64_t next_driven_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

std::vector<std::uint64_t> runs_of_this_thread() { return driven_here(); }

DrivenRun::DrivenRun(const std::vector<std::uint64_t>& within) : id_(next_driven_id()) {
  before_ = std::exchange(driven_here(), within);
  driven_here().push_back(id_);
}

DrivenRun::~DrivenRun() { driven_here() = std::move(before_); }

}  // namespace lockstep::train
