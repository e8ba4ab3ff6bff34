# Finds Arrow C++ inside the pyarrow wheel, which holds headers and versioned libraries but no CMake package.

# lockstep_find_arrow(<variable>)
#
# Sets <variable> to the folder of a pyarrow package, or to something false: LOCKSTEP_ARROW, or the package of
# Python_EXECUTABLE (when a wheel is built in isolation, of the environment around it). <variable>_VERSION is the suffix
# of its libraries, as in 2500 for pyarrow 25.0. If there is none, a build for Python is configured again when
# packages are installed there.
function(lockstep_find_arrow variable)
  set(${variable} "" PARENT_SCOPE)
  set(candidates "${LOCKSTEP_ARROW}")
  if(Python_EXECUTABLE AND EXISTS "${Python_EXECUTABLE}")
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
              "import sysconfig; from importlib.util import find_spec as find; arrow = find('pyarrow'); \
print(arrow.submodule_search_locations[0] if arrow else sysconfig.get_path('platlib') + '/pyarrow')"
      OUTPUT_VARIABLE in_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND candidates "${in_python}")
  endif()
  foreach(candidate IN LISTS candidates)
    file(GLOB libraries "${candidate}/libarrow.so.*")
    foreach(library IN LISTS libraries)
      string(REGEX MATCH "[0-9]+$" version "${library}")
      if(EXISTS "${candidate}/libparquet.so.${version}" AND EXISTS "${candidate}/include/arrow/api.h")
        set(${variable} "${candidate}" PARENT_SCOPE)
        set(${variable}_VERSION "${version}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
  if(in_python AND LOCKSTEP_BUILD_PYTHON) # a build of the core alone runs while packages are being installed
    cmake_path(GET in_python PARENT_PATH packages)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${packages}")
  endif()
endfunction()

# lockstep_add_arrow(<target> <folder> <version>): an interface library that compiles and links with Arrow and Parquet.
# <target>_compute adds what computes with columns, which pyarrow loads for Python.
function(lockstep_add_arrow target root version)
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE "${root}/include")
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} INTERFACE "${root}/libparquet.so.${version}" "${root}/libarrow.so.${version}")
  if(NOT SKBUILD) # a wheel is used with the pyarrow beside it
    target_link_options(${target} INTERFACE "-Wl,-rpath,${root}")
  endif()
  add_library(${target}_compute INTERFACE)
  target_link_libraries(${target}_compute INTERFACE ${target} "${root}/libarrow_compute.so.${version}")
endfunction()
