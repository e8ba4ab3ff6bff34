#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/address.h"

/// Copies of remote runs in the local cache (cached()). A run whose driver is on this machine has its live directory
/// there, which nothing here touches.
namespace lockstep::store {

/// In a cached run directory: its driver mirrored it from here.
inline constexpr const char* kMirrored = ".lockstep-mirrored";

/// Whether the store has a run at the address. Throws StorageError if it cannot be asked.
bool remote_run_exists(const Address& run);

/// Copies a run with its checkpoints into the cache and returns its place there; nothing if there is no run. What the
/// cache has already is not copied again. Where the copy differs from the store, the store counts, unless the copy is
/// what the last driver of the run left here: then that is newer.
std::optional<std::filesystem::path> fetch_run(const Address& run);

/// The run's run.json only, for lists.
std::optional<std::filesystem::path> fetch_record(const Address& run);

/// The run's logs and run.json.
std::optional<std::filesystem::path> fetch_logs(const Address& run);

/// The manifests of the run's checkpoints, as a run directory of their own; nothing if there is no run.
std::optional<std::filesystem::path> fetch_manifests(const Address& run);

/// How many checkpoints a run in the cache has: in the store, or here if its driver is on this machine.
std::size_t count_checkpoints(const std::filesystem::path& run);

/// Copies one checkpoint, verified; nothing if there is none.
std::optional<std::filesystem::path> fetch_checkpoint(const Address& checkpoint);

/// The runs directly below the address, in the cache, each with its run.json.
std::vector<std::filesystem::path> fetch_records_below(const Address& storage);

/// Uploads a directory's files, and its manifest.json last if it has one. Throws StorageError.
void upload_directory(const std::filesystem::path& from, const Address& to);

}  // namespace lockstep::store
