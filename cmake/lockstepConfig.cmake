# Installed as lockstep-config.cmake, which find_package(Lockstep) and find_package(lockstep) both find. Defines
#   Lockstep::lockstep    the public C++ API without LibTorch
#   Lockstep::torch       <lockstep/torch.h>, where LibTorch is; its sources come along and are compiled in the user's
#                         project, so that they fit whatever LibTorch that has
# find_package(Lockstep REQUIRED COMPONENTS torch) fails when LibTorch is not found.

include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/lockstepTargets.cmake")

if(NOT TARGET Lockstep::lockstep)
  add_library(Lockstep::lockstep INTERFACE IMPORTED)
  target_include_directories(Lockstep::lockstep INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../include")
  target_link_libraries(Lockstep::lockstep INTERFACE Lockstep::lockstep_train)
  target_compile_features(Lockstep::lockstep INTERFACE cxx_std_20)
  get_filename_component(lockstep_agent "${CMAKE_CURRENT_LIST_DIR}/../bin/lockstep-agent" ABSOLUTE)
  target_compile_definitions(Lockstep::lockstep INTERFACE "LOCKSTEP_INSTALLED_AGENT=\"${lockstep_agent}\"")
endif()

if(NOT TARGET Lockstep::torch)
  include("${CMAKE_CURRENT_LIST_DIR}/lockstep_libtorch.cmake")
  lockstep_find_libtorch(lockstep_libtorch_root)
  if(lockstep_libtorch_root)
    lockstep_add_libtorch(lockstep_libtorch "${lockstep_libtorch_root}")
    get_filename_component(lockstep_sources "${CMAKE_CURRENT_LIST_DIR}/../src" ABSOLUTE)
    file(GLOB lockstep_torch_sources "${lockstep_sources}/torch/*.cpp")
    add_library(lockstep_torch STATIC EXCLUDE_FROM_ALL ${lockstep_torch_sources})
    target_include_directories(lockstep_torch PRIVATE "${lockstep_sources}")
    target_include_directories(lockstep_torch SYSTEM PRIVATE "${lockstep_sources}/torch/gloo_shim")
    target_link_libraries(lockstep_torch PUBLIC Lockstep::lockstep lockstep_libtorch)
    add_library(Lockstep::torch ALIAS lockstep_torch)
    set(${CMAKE_FIND_PACKAGE_NAME}_torch_FOUND TRUE)
  else()
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
        "LibTorch was not found: install torch 2.13 for the Python that Python_EXECUTABLE names, or give Torch_DIR, "
        "CMAKE_PREFIX_PATH or LOCKSTEP_LIBTORCH for an unpacked LibTorch archive")
  endif()
endif()
foreach(component IN LISTS ${CMAKE_FIND_PACKAGE_NAME}_FIND_COMPONENTS)
  if(${CMAKE_FIND_PACKAGE_NAME}_FIND_REQUIRED_${component} AND NOT TARGET Lockstep::${component})
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
  endif()
endforeach()
