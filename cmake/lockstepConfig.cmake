# Installed: find_package(lockstep) defines Lockstep::lockstep, the whole public C++ API.

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
