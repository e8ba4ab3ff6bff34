#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "collective/region.h"

namespace lockstep::collective {

/// Tells the group when this rank dies, and notices when the next one does.
///
/// Its thread owns the rank's `life` word as a robust futex. When the process ends in whatever way, the kernel marks
/// the word and wakes who sleeps on it, before it frees the process's memory (which takes long, and only after which a
/// pidfd would tell). Each rank's thread sleeps on the word of the next rank that has not left, so a death is noticed
/// by one, who sets the fault for all; it costs nothing until then. That one may be held up itself (stopped, say), so
/// those who wait for others look as well: report_deaths.
class Guardian {
 public:
  /// Returns when the rank's word is set.
  Guardian(std::shared_ptr<Region> region, int rank);
  /// Frees the word. In a child of fork(), where there is no such thread, does nothing.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// All ranks have joined: begin to watch.
  void watch();

 private:
  void run();
  /// Sleeps until something may have changed.
  void watch_next();
  int next_member() const;
  void wake_thread();

  std::shared_ptr<Region> region_;
  int rank_;
  Word stage_{0};  ///< kStarting, kReady, kWatching, kStopping, kStopped
  std::unique_ptr<std::thread> thread_;
};

/// Whether the kernel has marked the word of a rank whose process is gone.
bool is_dead(RankWords& words);

/// How long one who waits may sleep without a look.
inline constexpr std::chrono::milliseconds kDeathLook{20};
/// Sets the fault when a rank has died.
void report_deaths(Region& region, int me);

}  // namespace lockstep::collective
