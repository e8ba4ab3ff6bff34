#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::sys {

/// The directory that is searched first, for programs that are built against an installed Lockstep. Call it before
/// other threads use places_of_program().
void set_program_directory(const std::filesystem::path& directory);

/// Where a program of Lockstep may be: installed beside the library or executable that contains this code, or built
/// elsewhere in the same build tree, in src/`folder`.
std::vector<std::filesystem::path> places_of_program(std::string_view name, std::string_view folder);

/// Whether it is a file that can be executed.
bool is_program(const std::filesystem::path& path);

}  // namespace lockstep::sys
