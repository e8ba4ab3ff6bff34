#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_entry.h"
#include "storage/places.h"
#include "store/object_store.h"

/// Single objects and directories of a store. Everything is tried until `deadline` (with_retries) and throws
/// StorageError.
namespace lockstep::storage {

/// Uploads the file, as long as it is now; `expected` is what it must be. Large files go in parts, several at a time.
void put_file(const std::filesystem::path& from, const Place& to, Instant deadline,
              const FileEntry* expected = nullptr);
void put_text(const std::string& text, const Place& to, Instant deadline);

/// Downloads an object, several parts at a time, to `to`, which is complete or as it was. `expected` is what it must
/// be. Returns false if there is no such object.
bool get_file(const Place& from, const std::filesystem::path& to, Instant deadline,
              const FileEntry* expected = nullptr);
/// The contents of a small object; nothing if it does not exist.
std::optional<std::string> get_text(const Place& from, Instant deadline);

/// Throws unless there is a bucket or directory, or it can be made.
void check_reachable(const Place& place, Instant deadline);

/// See ObjectStore::list.
std::vector<store::RemoteEntry> list(const Place& place, bool recursive, Instant deadline);

/// No object, or nothing below it, is not an error.
void remove_object(const Place& place, Instant deadline);
void remove_below(const Place& place, Instant deadline);

}  // namespace lockstep::storage
