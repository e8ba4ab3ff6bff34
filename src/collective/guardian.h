#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "collective/region.h"

namespace lockstep::collective {

/// Tells the group when this rank dies, and notices when the next one does.
///
/// Its thread owns the rank's `life` word as a robust futex. When the process ends in any way, the kernel marks the
/// word and wakes a thread that sleeps on it. It does so before it frees the process's memory, which takes long; a
/// pidfd reports the exit only afterwards. Each rank's thread sleeps on the word of the next rank that has not left, so
/// one rank notices a death and sets the fault for all; this costs nothing until then. That rank may itself be stopped,
/// so waiting ranks check too: report_deaths.
class Guardian {
 public:
  /// Returns once the rank's word is set.
  Guardian(std::shared_ptr<Region> region, int rank);
  /// Frees the word. Does nothing in a child of fork(), which does not have the thread.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// All ranks have joined: start watching.
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

/// A waiting rank checks for deaths at least this often.
inline constexpr std::chrono::milliseconds kDeathLook{20};
/// Sets the fault if a rank has died.
void report_deaths(Region& region, int me);

}  // namespace lockstep::collective
