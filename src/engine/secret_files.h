#pragma once

#include <string>

namespace lockstep::engine {

/// A path for the file with a new secret: in .lockstep in the home directory, which other nodes may share, otherwise in
/// the temporary directory.
std::string new_secret_path();

/// Removes the file when this process exits, but not when a fork of it does.
void remove_at_exit(const std::string& path);

}  // namespace lockstep::engine
