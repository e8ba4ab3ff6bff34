# Installed as lockstep-config.cmake, which find_package(Lockstep) and find_package(lockstep) both find. Defines
#   Lockstep::lockstep    the public C++ API without LibTorch
#   Lockstep::tune        the same with <lockstep/tune.h>, where the shared library of SQLite is; Lockstep::lockstep links
#                         it too then, and programs that do not use it do not load SQLite
#   Lockstep::torch       <lockstep/torch.h>, where LibTorch is. It comes compiled for the LibTorch that Lockstep was built
#                         with; for another one, or with LOCKSTEP_TORCH_FROM_SOURCES=ON, the user's project compiles it
#   Lockstep::data        <lockstep/data.h>, compiled for the Arrow of one major version of pyarrow, where that is
# find_package(Lockstep REQUIRED COMPONENTS torch) fails if LibTorch is not found. lockstep_libtorch.cmake says where it
# is searched for. COMPONENTS data fails likewise without Arrow, and COMPONENTS tune without SQLite.

include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/lockstepTargets.cmake")
# The folder that holds include/, src/, bin/ and cmake/. Links are followed: the build tree's package is made of them.
get_filename_component(lockstep_package "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(lockstep_package "${lockstep_package}" DIRECTORY)

if(NOT TARGET Lockstep::lockstep)
  add_library(Lockstep::lockstep INTERFACE IMPORTED)
  target_include_directories(Lockstep::lockstep INTERFACE "${lockstep_package}/include")
  target_link_libraries(Lockstep::lockstep INTERFACE Lockstep::lockstep_train)
  target_compile_features(Lockstep::lockstep INTERFACE cxx_std_20)
  # A separate source tells programs where the agent is. As a definition for all of their sources, the path would
  # prevent a compiler cache from serving another installation.
  set(lockstep_agent_source "${CMAKE_CURRENT_BINARY_DIR}/lockstep.sources/agent.cpp")
  file(CONFIGURE OUTPUT "${lockstep_agent_source}" @ONLY CONTENT [=[
namespace lockstep::detail {
bool set_default_agent(const char* path);
namespace {
[[maybe_unused]] const bool agent_is_set = set_default_agent("@lockstep_package@/bin/lockstep-agent");
}
}  // namespace lockstep::detail
]=])
  target_sources(Lockstep::lockstep
                 INTERFACE "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_OWN_SOURCES>>>:${lockstep_agent_source}>")
endif()

find_library(LOCKSTEP_SQLITE NAMES sqlite3 libsqlite3.so.0)
mark_as_advanced(LOCKSTEP_SQLITE)
if(LOCKSTEP_SQLITE AND NOT TARGET Lockstep::tune)
  if(NOT LOCKSTEP_TUNE_FOLDER)
    set(LOCKSTEP_TUNE_FOLDER "${lockstep_package}/lib")
  endif()
  add_library(Lockstep::tune INTERFACE IMPORTED)
  target_link_libraries(Lockstep::tune INTERFACE Lockstep::lockstep)
  target_link_libraries(
    Lockstep::lockstep
    INTERFACE "${LOCKSTEP_TUNE_FOLDER}/liblockstep_tune_tuner.a" "${LOCKSTEP_TUNE_FOLDER}/liblockstep_tune.a"
              Lockstep::lockstep_train "-Wl,--push-state,--as-needed,${LOCKSTEP_SQLITE},--pop-state")
endif()

# Sets <folder> to LibTorch's folder and <problem> to an empty string, or <problem> to what is wrong.
function(lockstep_choose_libtorch folder problem)
  set(${folder} "" PARENT_SCOPE)
  if(LOCKSTEP_LIBTORCH AND NOT EXISTS "${LOCKSTEP_LIBTORCH}/lib/libtorch_cpu.so")
    set(${problem} "LOCKSTEP_LIBTORCH is ${LOCKSTEP_LIBTORCH}, which holds no LibTorch (there is no lib/libtorch_cpu.so): \
give the folder that an archive of LibTorch unpacks to, or that of a Python package torch" PARENT_SCOPE)
    return()
  endif()
  lockstep_find_libtorch(found)
  foreach(interpreter IN ITEMS "${LOCKSTEP_PACKAGE_PYTHON}" "${lockstep_package}/../../../../bin/python3")
    if(NOT found AND NOT Python_EXECUTABLE AND EXISTS "${interpreter}")
      set(Python_EXECUTABLE "${interpreter}") # of the environment that Lockstep is in, which need not be in the PATH
      lockstep_find_libtorch(found)
      unset(Python_EXECUTABLE)
    endif()
  endforeach()
  if(NOT found)
    set(${problem} "LibTorch was not found. Install torch 2.13 for the Python in the PATH or beside Lockstep \
(pip install torch), name a Python that has it with -DPython_EXECUTABLE=..., or give an unpacked LibTorch archive with \
-DCMAKE_PREFIX_PATH=/path/to/libtorch" PARENT_SCOPE)
    return()
  endif()
  set(header "${found}/include/torch/csrc/api/include/torch/version.h") # where older releases have their version
  if(NOT found_VERSION AND EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." found_VERSION)
  endif()
  if(found_VERSION AND found_VERSION VERSION_LESS 2.13)
    set(${problem} "LibTorch in ${found} is ${found_VERSION}: Lockstep needs 2.13 or newer. Upgrade torch there, or name \
another with -DLOCKSTEP_LIBTORCH=/path/to/libtorch" PARENT_SCOPE)
    return()
  endif()
  set(${problem} "" PARENT_SCOPE)
  set(${folder} "${found}" PARENT_SCOPE)
  set(${folder}_VERSION "${found_VERSION}" PARENT_SCOPE)
endfunction()

# Sets <variable> to the folder of archives that fit the chosen LibTorch, or to something false.
function(lockstep_find_compiled_torch variable)
  set(${variable} "" PARENT_SCOPE)
  set(LOCKSTEP_TORCH_BUILD_FOLDER "${lockstep_package}/lib")
  include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/lockstepTorchBuild.cmake" OPTIONAL)
  set(cuda OFF)
  if(EXISTS "${lockstep_libtorch_root}/lib/libtorch_cuda.so")
    set(cuda ON)
  endif()
  if(NOT LOCKSTEP_TORCH_FROM_SOURCES
     AND "${LOCKSTEP_TORCH_BUILD_VERSION}" STREQUAL "${lockstep_libtorch_root_VERSION}"
     AND "${LOCKSTEP_TORCH_BUILD_CUDA}" STREQUAL "${cuda}"
     AND EXISTS "${LOCKSTEP_TORCH_BUILD_FOLDER}/liblockstep_torch.a")
    set(${variable} "${LOCKSTEP_TORCH_BUILD_FOLDER}" PARENT_SCOPE)
  endif()
endfunction()

# Defines Lockstep::torch, compiled in the user's project.
function(lockstep_compile_torch)
  # Through a link in the build directory, so that object names are short and the same for every installation.
  set(link "${CMAKE_CURRENT_BINARY_DIR}/lockstep.sources")
  file(MAKE_DIRECTORY "${link}")
  file(CREATE_LINK "${lockstep_package}/src/torch" "${link}/torch" SYMBOLIC)
  file(GLOB sources "${link}/torch/*.cpp")
  add_library(lockstep_torch STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(lockstep_torch PROPERTIES LOCKSTEP_OWN_SOURCES ON POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  target_include_directories(lockstep_torch PRIVATE "${lockstep_package}/src")
  target_include_directories(lockstep_torch SYSTEM PRIVATE "${lockstep_package}/src/torch/gloo_shim")
  target_link_libraries(lockstep_torch PUBLIC Lockstep::lockstep lockstep_libtorch
                        PRIVATE Lockstep::lockstep_collective Lockstep::lockstep_data_order)
  add_library(Lockstep::torch ALIAS lockstep_torch)
endfunction()

if(NOT TARGET Lockstep::torch)
  include("${CMAKE_CURRENT_LIST_DIR}/lockstep_libtorch.cmake")
  lockstep_choose_libtorch(lockstep_libtorch_root lockstep_libtorch_problem)
  if(NOT lockstep_libtorch_problem)
    if(NOT ${CMAKE_FIND_PACKAGE_NAME}_FIND_QUIETLY)
      message(STATUS "Lockstep: LibTorch in ${lockstep_libtorch_root}")
    endif()
    lockstep_add_libtorch(lockstep_libtorch "${lockstep_libtorch_root}")
    lockstep_find_compiled_torch(lockstep_torch_folder)
    if(lockstep_torch_folder)
      add_library(Lockstep::torch STATIC IMPORTED)
      set_target_properties(Lockstep::torch PROPERTIES IMPORTED_LOCATION "${lockstep_torch_folder}/liblockstep_torch.a")
      target_link_libraries(Lockstep::torch INTERFACE "${lockstep_torch_folder}/liblockstep_torch_backend.a"
                            Lockstep::lockstep Lockstep::lockstep_collective Lockstep::lockstep_data_order
                            lockstep_libtorch)
    else()
      if(NOT ${CMAKE_FIND_PACKAGE_NAME}_FIND_QUIETLY)
        message(STATUS "Lockstep: Lockstep::torch is compiled for this LibTorch")
      endif()
      lockstep_compile_torch()
    endif()
  elseif(NOT ${CMAKE_FIND_PACKAGE_NAME}_FIND_QUIETLY AND NOT ${CMAKE_FIND_PACKAGE_NAME}_FIND_REQUIRED_torch)
    message(STATUS "Lockstep: Lockstep::torch is left out: ${lockstep_libtorch_problem}")
  endif()
endif()

# Sets <folder> to the pyarrow package whose Arrow Lockstep::data was compiled for and <problem> to an empty string, or
# <problem> to what is wrong.
function(lockstep_choose_arrow folder problem)
  if(NOT LOCKSTEP_DATA_BUILD_VERSION)
    set(${problem} "Lockstep was built without pyarrow. Install it again with pyarrow beside it" PARENT_SCOPE)
    return()
  endif()
  lockstep_find_arrow(found)
  foreach(interpreter IN ITEMS "${LOCKSTEP_PACKAGE_PYTHON}" "${lockstep_package}/../../../../bin/python3")
    if(NOT found AND NOT Python_EXECUTABLE AND EXISTS "${interpreter}")
      set(Python_EXECUTABLE "${interpreter}") # of the environment that Lockstep is in, which need not be in the PATH
      lockstep_find_arrow(found)
      unset(Python_EXECUTABLE)
    endif()
  endforeach()
  string(REGEX REPLACE "00$" "" major "${LOCKSTEP_DATA_BUILD_VERSION}")
  if(NOT "${found_VERSION}" STREQUAL "${LOCKSTEP_DATA_BUILD_VERSION}")
    set(${problem} "Lockstep::data was built for the Arrow of pyarrow ${major}, which was not found. Install it for the \
Python beside Lockstep (pip install 'pyarrow==${major}.*'), or give its folder with -DLOCKSTEP_ARROW=/path/to/pyarrow" PARENT_SCOPE)
    return()
  endif()
  set(${problem} "" PARENT_SCOPE)
  set(${folder} "${found}" PARENT_SCOPE)
endfunction()

if(NOT TARGET Lockstep::data)
  set(LOCKSTEP_DATA_BUILD_FOLDER "${lockstep_package}/lib")
  include("${CMAKE_CURRENT_LIST_DIR}/lockstepDataBuild.cmake" OPTIONAL)
  include("${CMAKE_CURRENT_LIST_DIR}/lockstep_arrow.cmake")
  lockstep_choose_arrow(lockstep_arrow_root lockstep_arrow_problem)
  if(NOT lockstep_arrow_problem)
    lockstep_add_arrow(lockstep_arrow "${lockstep_arrow_root}" "${LOCKSTEP_DATA_BUILD_VERSION}")
    add_library(Lockstep::data STATIC IMPORTED)
    set_target_properties(Lockstep::data PROPERTIES IMPORTED_LOCATION "${LOCKSTEP_DATA_BUILD_FOLDER}/liblockstep_data.a")
    target_link_libraries(
      Lockstep::data INTERFACE "${LOCKSTEP_DATA_BUILD_FOLDER}/liblockstep_data_index.a" Lockstep::lockstep_data_order
                               Lockstep::lockstep lockstep_arrow_compute)
  endif()
endif()

foreach(component IN LISTS ${CMAKE_FIND_PACKAGE_NAME}_FIND_COMPONENTS)
  if(TARGET Lockstep::${component})
    set(${CMAKE_FIND_PACKAGE_NAME}_${component}_FOUND TRUE)
  elseif(${CMAKE_FIND_PACKAGE_NAME}_FIND_REQUIRED_${component})
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    if(component STREQUAL "torch")
      set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${lockstep_libtorch_problem}")
    elseif(component STREQUAL "data")
      set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${lockstep_arrow_problem}")
    elseif(component STREQUAL "tune")
      set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "SQLite was not found. Install it (Debian: libsqlite3-dev), or \
name its library with -DLOCKSTEP_SQLITE=/path/to/libsqlite3.so")
    else()
      set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "there is no component ${component}; there are torch, data and \
tune")
    endif()
  endif()
endforeach()
