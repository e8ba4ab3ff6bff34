#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/address.h"
#include "sys/descriptor.h"

namespace lockstep::store {

/// How long questions whose answer a user waits for are tried, in seconds.
inline constexpr double kQuestionPatience = 30;

/// Something below an address.
struct RemoteEntry {
  std::string name;  ///< relative to that address, parts joined by '/'
  std::uint64_t size = 0;
  bool is_directory = false;
};

/// What this process does with object stores. lockstep-store does it, in its own process; if that dies, it is started
/// again and the operation repeated, as all of them can be. Transient errors of the store are retried, with growing
/// pauses, until `patience` has passed. For one thread; calls block. Functions throw StorageError that names the
/// object and the cause.
class ObjectStore {
 public:
  explicit ObjectStore(double patience = 120) : patience_(patience) {}

  /// Throws unless the bucket can be reached and listed.
  void check(const Address& address);
  /// Everything below the address, sorted by name; or only what lies directly below. An address without anything
  /// below it has an empty list.
  std::vector<RemoteEntry> list(const Address& address, bool recursive);

  /// Copies files of a directory, as they are now; those that are gone are skipped. They are replaced.
  void put_files(const std::filesystem::path& from, const Address& to, const std::vector<std::string>& names);
  /// Copies files into a directory, each complete or not at all. Returns the names that the store does not have.
  std::vector<std::string> get_files(const Address& from, const std::filesystem::path& to,
                                     const std::vector<std::string>& names);

  /// Uploads a committed checkpoint: its files, which must match its manifest, and then the manifest. Throws if there
  /// is a manifest of another checkpoint already. One that is there is not uploaded again.
  void put_checkpoint(const std::filesystem::path& from, const Address& to);
  /// Downloads a checkpoint, or takes what a local copy has of it; it is verified. Returns false if there is none.
  bool get_checkpoint(const Address& from, const std::filesystem::path& to);
  /// Removes the manifest, and then everything else of the checkpoint.
  void remove_checkpoint(const Address& address);

  /// Removes what dead uploads left in the directory of a run: files of checkpoints without a manifest, and open
  /// multipart uploads. Only while no other process uploads there. Returns how many of each.
  std::pair<int, int> clean(const Address& run);

 private:
  Value call(Value request);

  const double patience_;
  sys::Descriptor socket_;
};

}  // namespace lockstep::store
