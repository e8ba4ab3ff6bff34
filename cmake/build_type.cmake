# Settings for every target: language level, visibility, optimisation.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Everything may end up in an extension module next to libraries with other versions of our dependencies, so symbols are
# hidden unless marked otherwise.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# Line tables are enough for stack traces; full debug information would double the build time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# Gives the same object code wherever the tree is, so that the compiler cache also serves a new clone. ccache makes
# paths relative to the build tree.
cmake_path(RELATIVE_PATH PROJECT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_BINARY_DIR}" OUTPUT_VARIABLE source_from_build)
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${source_from_build}/=")

# A few sources of a folder are compiled together, so that their headers are read and templates instantiated only once;
# this takes a third of the time. Names in anonymous namespaces must therefore be unique within their folder.
option(LOCKSTEP_UNITY "Compile several sources of a folder as one" ON)
set(CMAKE_UNITY_BUILD ${LOCKSTEP_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
