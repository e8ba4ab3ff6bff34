#include "train/open_runs.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace lockstep::train {
namespace {

struct OpenRuns {
  const int owner = ::getpid();
  OpenRuns* parents = nullptr;  ///< of the process that forked this one; not used
  std::mutex mutex;             // guards those below
  std::condition_variable changed;
  std::map<driver::RunControl*, std::thread::id> threads;  ///< that run them; none if they have not begun
  std::multiset<std::thread::id> waits;                    ///< threads that wait
  bool closed = false;
};

/// Those of this process. A fork gets new ones: it has none of the threads, and their locks may be held.
OpenRuns& open_runs() {
  static std::atomic<OpenRuns*> current = nullptr;
  OpenRuns* found = current;
  while (found == nullptr || found->owner != ::getpid()) {
    auto* made = new OpenRuns;
    made->parents = found;
    if (current.compare_exchange_strong(found, made)) return *made;
    delete made;
  }
  return *found;
}

}  // namespace

OpenRun::OpenRun(driver::RunControl& control) : control_(control) {
  OpenRuns& runs = open_runs();
  const std::lock_guard lock(runs.mutex);
  if (runs.closed) throw EngineError("[trainer] no run can begin any more: the program is exiting");
  runs.threads.try_emplace(&control_);
}

OpenRun::~OpenRun() {
  OpenRuns& runs = open_runs();
  const std::lock_guard lock(runs.mutex);
  runs.threads.erase(&control_);
  runs.changed.notify_all();
}

void OpenRun::set_thread() {
  OpenRuns& runs = open_runs();
  const std::lock_guard lock(runs.mutex);
  runs.threads[&control_] = std::this_thread::get_id();
}

OpenWait::OpenWait() {
  OpenRuns& runs = open_runs();
  const std::lock_guard lock(runs.mutex);
  runs.waits.insert(std::this_thread::get_id());
}

OpenWait::~OpenWait() {
  OpenRuns& runs = open_runs();
  const std::lock_guard lock(runs.mutex);
  if (const auto own = runs.waits.find(std::this_thread::get_id()); own != runs.waits.end()) runs.waits.erase(own);
  runs.changed.notify_all();
}

void stop_open_runs() {
  OpenRuns& runs = open_runs();
  std::unique_lock lock(runs.mutex);
  runs.closed = true;
  for (const auto& [control, thread] : runs.threads) control->request_stop(true);
  const auto is_own = [](std::thread::id thread) { return thread == std::this_thread::get_id(); };
  runs.changed.wait(lock, [&] {
    return std::ranges::all_of(runs.threads, is_own, [](const auto& run) { return run.second; }) &&
           std::ranges::all_of(runs.waits, is_own);
  });
}

}  // namespace lockstep::train
