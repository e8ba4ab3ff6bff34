# Finds LibTorch without its own CMake package, which requires a CUDA toolkit if torch was built with CUDA, and adds
# flags. Also installed: a user's project finds LibTorch in the same way.

# lockstep_find_libtorch(<variable>)
#
# Sets <variable> to the folder that holds LibTorch's include/ and lib/, or to something false. In this order:
# - LOCKSTEP_LIBTORCH, such a folder
# - Torch_DIR, Torch_ROOT or CMAKE_PREFIX_PATH, as for find_package(Torch), then the environment's variables of these
#   names: an unpacked LibTorch archive, or its folder share/cmake or share/cmake/Torch
# - the torch package of Python_EXECUTABLE (when a wheel is built in isolation, of the environment around it)
# - the torch package beside an installed Lockstep, and that of the python3 in the PATH
#
# <variable>_VERSION is its version, as in 2.13.0.
function(lockstep_find_libtorch variable)
  set(candidates "${LOCKSTEP_LIBTORCH}")
  file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" prefixes)
  foreach(place IN ITEMS "${Torch_DIR}" "${Torch_ROOT}" ${CMAKE_PREFIX_PATH} "$ENV{Torch_DIR}" "$ENV{Torch_ROOT}" ${prefixes})
    string(REGEX REPLACE "/share/cmake(/Torch)?/*$" "" place "${place}") # torch.utils.cmake_prefix_path has the first
    list(APPEND candidates "${place}")
  endforeach()
  if(Python_EXECUTABLE)
    lockstep_torch_of("${Python_EXECUTABLE}" in_python)
    list(APPEND candidates "${in_python}")
  endif()
  list(APPEND candidates "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../torch")
  find_program(LOCKSTEP_PYTHON NAMES python3 python)
  mark_as_advanced(LOCKSTEP_PYTHON)
  if(LOCKSTEP_PYTHON AND NOT Python_EXECUTABLE)
    lockstep_torch_of("${LOCKSTEP_PYTHON}" in_python)
    list(APPEND candidates "${in_python}")
  endif()
  set(${variable} "" PARENT_SCOPE)
  foreach(candidate IN LISTS candidates)
    if(candidate AND EXISTS "${candidate}/include/torch/csrc/api/include/torch/torch.h"
       AND EXISTS "${candidate}/lib/libtorch_cpu.so")
      get_filename_component(root "${candidate}" REALPATH)
      set(version_header "${root}/include/torch/headeronly/version.h")
      set(version "")
      if(EXISTS "${version_header}")
        file(STRINGS "${version_header}" lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
        string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
        list(JOIN numbers "." version)
      endif()
      set(${variable} "${root}" PARENT_SCOPE)
      set(${variable}_VERSION "${version}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Where the torch package of an interpreter is or would be.
function(lockstep_torch_of interpreter variable)
  execute_process(
    COMMAND "${interpreter}" -c
            "import sysconfig; from importlib.util import find_spec as find; torch = find('torch'); \
print(torch.submodule_search_locations[0] if torch else sysconfig.get_path('platlib') + '/torch')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# lockstep_add_libtorch(<target> <folder>): an interface library that compiles and links with LibTorch.
function(lockstep_add_libtorch target root)
  foreach(name c10 torch_cpu torch)
    find_library(LOCKSTEP_LIBTORCH_${name} ${name} HINTS "${root}/lib" NO_DEFAULT_PATH NO_CACHE REQUIRED)
  endforeach()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include")
  target_compile_definitions(${target} INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE
                                                 _GLIBCXX_USE_CXX11_ABI=1)
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} INTERFACE "${LOCKSTEP_LIBTORCH_torch_cpu}" "${LOCKSTEP_LIBTORCH_c10}")
  # libtorch.so only refers to the others, such as those with CUDA, from which no symbol is used directly.
  target_link_options(${target} INTERFACE "-Wl,-rpath-link,${root}/lib" "-Wl,--allow-shlib-undefined"
                      "-Wl,--no-as-needed,${LOCKSTEP_LIBTORCH_torch},--as-needed")
  if(NOT SKBUILD) # a wheel is used with the torch beside it
    target_link_options(${target} INTERFACE "-Wl,-rpath,${root}/lib")
  endif()
  if(EXISTS "${root}/lib/libtorch_cuda.so")
    lockstep_add_nccl(${target} "${root}")
  endif()
endfunction()

# GPU tensors use NCCL if the headers of CUDA and NCCL are found, in a toolkit or in the packages next to torch.
function(lockstep_add_nccl target root)
  file(GLOB beside "${root}/../nvidia/*/include")
  foreach(header cuda_runtime.h cusparse.h cublas_v2.h cusolverDn.h nccl.h)
    find_path(folder ${header} HINTS ${beside} PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include NO_CACHE)
    if(NOT folder)
      message(STATUS "Lockstep: GPU tensors are left out: ${header} was not found")
      return()
    endif()
    target_include_directories(${target} SYSTEM INTERFACE "${folder}")
    unset(folder)
  endforeach()
  target_compile_definitions(${target} INTERFACE LOCKSTEP_WITH_NCCL USE_C10D_NCCL)
  target_link_libraries(${target} INTERFACE "${root}/lib/libtorch_cuda.so" "${root}/lib/libc10_cuda.so")
endfunction()
