#pragma once

#include <lockstep/callback.h>

#include <thread>

#include "sys/descriptor.h"
#include "sys/private_files.h"
#include "sys/signals.h"

namespace lockstep::train {

/// Lets `lockstep stop` end one run of a process that may have several: while the run goes on, a thread waits for the
/// file store::kStopRequest in its directory and hands the run SIGINT alone. Without a descriptor or a thread for it
/// there is no listener; the command then signals the process.
class StopListener : public Callback {
 public:
  /// `signals` is the run's, and is borrowed.
  explicit StopListener(sys::SignalWatch& signals) : signals_(signals) {}
  ~StopListener() override { end(); }

  std::string name() const override { return "StopListener"; }
  /// The run has locked its directory now.
  void on_start(const RunInfo& run) override;
  void on_end(const Result&) override { end(); }

 private:
  void listen();
  void look();
  void end();

  sys::SignalWatch& signals_;
  std::filesystem::path directory_;
  sys::PrivateFiles files_;
  sys::Descriptor inotify_, ended_;
  int watch_ = -1;  ///< in inotify_
  std::thread thread_;
};

}  // namespace lockstep::train
