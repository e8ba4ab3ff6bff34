#pragma once

#include <filesystem>

#include "base/clock.h"
#include "storage/places.h"

/// Checkpoints in a store. One exists if and only if its manifest does: the manifest is written last and removed first.
/// Functions throw StorageError that names the object and the cause.
namespace lockstep::storage {

/// See ObjectStore::put_checkpoint.
void put_checkpoint(const std::filesystem::path& from, const Place& to, Instant deadline);
/// See ObjectStore::get_checkpoint.
bool get_checkpoint(const Place& from, const std::filesystem::path& to, Instant deadline);
/// See ObjectStore::remove_checkpoint.
void remove_checkpoint(const Place& place, Instant deadline);
/// Removes what is below the run's directories checkpoint_* that have no manifest, and returns how many there were.
int remove_unfinished(const Place& run, Instant deadline);

}  // namespace lockstep::storage
