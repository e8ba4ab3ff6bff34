#pragma once

#include <lockstep/callback.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "store/address.h"
#include "store/object_store.h"

namespace lockstep::train {

/// Mirrors a run directory in the cache to its place in an object store, in a thread: checkpoints as they are committed
/// here, other files every `interval` and at the end. A checkpoint exists there once its manifest does, and is removed
/// there when the run's retention has removed it here, but never before a newer one is there.
///
/// The driver's thread calls it. A store that cannot be reached delays the uploads and is warned about; finish() is
/// where an upload that did not succeed is an error.
class RunMirror : public Callback {
 public:
  RunMirror(store::Address run, std::filesystem::path directory, Seconds interval = Seconds(10));
  ~RunMirror() override;

  std::string name() const override { return "RunMirror"; }
  void on_start(const RunInfo&) override;
  void on_checkpoint(const Checkpoint& checkpoint, const Value&) override;

  /// Uploads everything that is left and ends the thread. Throws StorageError if something could not be uploaded.
  void finish();

 private:
  void run();
  void round(bool last);
  void begin();
  void upload_checkpoints();
  void retire_checkpoints();
  void upload_files();
  std::map<int, std::filesystem::path> staged();
  void unstage(int seq);

  const store::Address run_;
  const std::filesystem::path directory_;
  const Seconds interval_;

  // Of the thread:
  store::ObjectStore store_;
  bool begun_ = false;
  std::set<int> there_;  ///< checkpoints in the store
  /// What was uploaded of other files: size and time of the last change.
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> uploaded_;

  std::mutex mutex_;  // guards those below
  std::condition_variable changed_;
  std::map<int, std::filesystem::path> staged_;  ///< links to the files of checkpoints that are to be uploaded
  bool news_ = false, ending_ = false;
  std::string error_;  ///< why the last round failed
  std::thread thread_;
};

}  // namespace lockstep::train
