# What holds for every target: language level, visibility, optimisation.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Everything may end up in an extension module beside libraries that carry other versions of what we use: nothing is
# exported unless it says so.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# Line tables are enough for stack traces; full debug information doubles the time of a build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# The same object code wherever the tree lies; also what lets the compiler cache serve a fresh clone. The compiler sees
# paths relative to the build tree when the cache has made them so.
cmake_path(RELATIVE_PATH PROJECT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_BINARY_DIR}" OUTPUT_VARIABLE source_from_build)
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${source_from_build}/=")

# A folder's sources are compiled a few at a time, as one: their headers are then read and their templates instantiated once
# for all of them, which takes a third of the time. Names in a file's anonymous namespace are therefore its folder's.
option(LOCKSTEP_UNITY "Compile several sources of a folder as one" ON)
set(CMAKE_UNITY_BUILD ${LOCKSTEP_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
