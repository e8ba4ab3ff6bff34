#pragma once

#include <filesystem>

#include "store/run_record.h"
#include "sys/files.h"

namespace lockstep::store {

/// The file in a run directory that asks the run's driver to end this run alone. It names the driver that is meant.
inline constexpr const char* kStopRequest = "stop_request";

/// Writes the file. Throws StorageError, also if other users own or can write the directory.
void request_stop(const std::filesystem::path& run, const DriverProcess& driver);
/// Removes the file. Returns false if it is gone: the driver took it.
bool withdraw_stop(const std::filesystem::path& run);
/// For the driver: removes the file if there is one, and returns whether it names `driver`. Throws StorageError, also
/// if other users own or can write the file, which then stays.
bool take_stop_request(sys::Files& files, const std::filesystem::path& run, const DriverProcess& driver);

}  // namespace lockstep::store
