#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::store {

/// A place in an object store: s3://bucket/prefix, gs://, abfs://, hdfs://, with options of the file system after `?`
/// (`endpoint_override=`, `scheme=`, `region=`), which count for everything below it.
struct Address {
  std::string scheme;
  std::string authority;          ///< a bucket, container or host; may be empty for hdfs
  std::vector<std::string> path;  ///< plain names, without `.` and `..`
  std::string query;              ///< without `?`

  /// Throws ConfigError that says what is wrong: an unknown scheme, no bucket, a password in it, a path that leads
  /// upwards.
  static Address parse(std::string_view text);

  std::string text() const;
  /// What lies below it. `names` may have several names, separated by slashes.
  Address operator/(std::string_view names) const;
  /// Nothing above the root.
  std::optional<Address> parent() const;
  /// Its last name; empty for the root.
  std::string name() const { return path.empty() ? "" : path.back(); }

  bool operator==(const Address&) const = default;
};

/// Whether a user means a place in an object store. `file://` names local files.
bool is_address(std::string_view text);

/// What is at an address is kept at one place of the local cache, below LOCKSTEP_CACHE_PATH, or else
/// ~/.cache/lockstep/storage. Each bucket has a directory there, in which paths are as in the bucket. Runs with such a
/// storage path live there and are mirrored.
///
/// Makes that place's bucket directory (0700) if it is missing. Throws StorageError.
std::filesystem::path cached(const Address& address);
/// The inverse; nothing for a path that is not below a bucket of the cache.
std::optional<Address> address_of(const std::filesystem::path& path);

/// The local path that a user means: an address' place in the cache, what a `file://` address names, or the path
/// itself. Throws ConfigError or StorageError.
std::filesystem::path local_path(const std::filesystem::path& given);
/// For people: the address of a path in the cache, otherwise the path itself.
std::string shown(const std::filesystem::path& path);

}  // namespace lockstep::store
