#pragma once

#include <lockstep/config.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "sys/descriptor.h"

namespace lockstep::driver {

/// Whether a signal says that the machine will be taken away: SIGUSR1 always, and SIGTERM if the run watches for
/// preemption, or runs in Slurm or Kubernetes, which send it before they kill.
bool is_preemption_notice(int signal, const RunConfig& run);

/// Watches what RunConfig::preemption names, in a thread: a file that appears, or a command for the shell that ends
/// with 0. Both are tried every second. If the file, or what the command prints, is a number, that many seconds are
/// left.
class PreemptionWatch {
 public:
  /// A text with a space is a command. "file:PATH" is always a file.
  explicit PreemptionWatch(const std::string& notice);
  ~PreemptionWatch();
  PreemptionWatch(const PreemptionWatch&) = delete;
  PreemptionWatch& operator=(const PreemptionWatch&) = delete;

  struct Notice {
    std::string what;  ///< "the file /run/preempted is there"
    std::optional<Seconds> left;
  };
  /// Readable when there is a notice; -1 if nothing is watched.
  int fd() const { return event_.get(); }
  Notice take();

 private:
  void watch();
  std::optional<std::string> look() const;

  const std::string notice_;
  bool is_command_ = false;
  sys::Descriptor event_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stop_ = false;
  Notice found_;

  std::thread thread_;
};

}  // namespace lockstep::driver
