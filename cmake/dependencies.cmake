# Third-party headers of the core. All but SQLite are used header-only, so that what we ship needs only the C++ runtime.
# Libraries that are used in one place are found there: CLI11 in cli/, GoogleTest in lockstep_test.cmake, pybind11 in
# python/.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_path(LOCKSTEP_ASIO_INCLUDE asio.hpp REQUIRED)
find_path(LOCKSTEP_XXHASH_INCLUDE xxhash.h REQUIRED)
mark_as_advanced(LOCKSTEP_ASIO_INCLUDE LOCKSTEP_XXHASH_INCLUDE)

# BUILD_INTERFACE applies to our own build only, not to programs that link the installed libraries.
add_library(lockstep_third_party INTERFACE)
target_link_libraries(lockstep_third_party INTERFACE "$<BUILD_INTERFACE:nlohmann_json::nlohmann_json>" Threads::Threads)
foreach(directory "${LOCKSTEP_ASIO_INCLUDE}" "${LOCKSTEP_XXHASH_INCLUDE}")
  target_include_directories(lockstep_third_party SYSTEM INTERFACE "$<BUILD_INTERFACE:${directory}>")
endforeach()
foreach(definition ASIO_STANDALONE ASIO_NO_DEPRECATED)
  target_compile_definitions(lockstep_third_party INTERFACE "$<BUILD_INTERFACE:${definition}=>")
endforeach()

# Of src/tune alone. SQLite is the system's shared library, which Python's sqlite3 loads too: two copies in one process
# would lose each other's locks.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(SQLite3 3.31 REQUIRED)
