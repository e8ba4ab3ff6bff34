#pragma once

#include <filesystem>

#include "sys/descriptor.h"

namespace lockstep::store {

/// A connection to lockstep-store, the program that reaches object stores. The first call in a process starts the
/// program; if it has died, another is started. It ends with this process. A fork of the process starts its own. Any
/// thread may call. Throws StorageError that says what is missing.
sys::Descriptor connect_to_store();

/// For messages: what the program printed on standard error before it ended, or nothing.
std::string last_words_of_store();

/// The directory of the package pyarrow, in which the program's libraries are looked up too. Call it before other
/// threads use connect_to_store().
void set_arrow_directory(const std::filesystem::path& directory);

/// Whether the program is there: LOCKSTEP_STORE, or beside the agent.
bool has_store_program();

}  // namespace lockstep::store
