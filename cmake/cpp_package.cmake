# Everything that a C++ program needs, in one folder: include/, lib/, src/, bin/ and cmake/. find_package(Lockstep) with
# Lockstep_DIR=<folder>/cmake defines the targets of lockstepConfig.cmake.

# Sets <variable> to the folder that holds nlohmann/: public headers include it, so the version that we compiled with is
# installed too.
function(lockstep_json_include variable)
  get_target_property(includes nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  list(GET includes 0 include)
  set(${variable} "${include}" PARENT_SCOPE)
endfunction()

# lockstep_install_cpp_package(<package>): installs it into the folder <package>, where bin/ is already.
function(lockstep_install_cpp_package package)
  lockstep_json_include(json_include)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${package}/include")
  install(DIRECTORY "${json_include}/nlohmann" DESTINATION "${package}/include" FILES_MATCHING PATTERN "*.hpp")
  install(FILES "${PROJECT_SOURCE_DIR}/licenses/nlohmann_json.txt" DESTINATION "${package}/include/nlohmann"
          RENAME LICENSE.txt)

  get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
  install(TARGETS ${libraries} lockstep_third_party EXPORT lockstep ARCHIVE DESTINATION "${package}/lib")
  # Not exported, because they link with the SQLite of the user's machine.
  install(TARGETS lockstep_tune lockstep_tune_tuner ARCHIVE DESTINATION "${package}/lib")
  # --strip does not affect archives, which consist mostly of debug information.
  install(CODE "file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${package}/lib/*.a\")
                execute_process(COMMAND \"${CMAKE_STRIP}\" -g \${archives} COMMAND_ERROR_IS_FATAL ANY)")
  install(EXPORT lockstep DESTINATION "${package}/cmake" FILE lockstepTargets.cmake NAMESPACE Lockstep::)

  # Lockstep::torch, compiled for the LibTorch of this build.
  if(TARGET lockstep_torch)
    install(TARGETS lockstep_torch lockstep_torch_backend ARCHIVE DESTINATION "${package}/lib")
    lockstep_write_torch_build("${CMAKE_CURRENT_BINARY_DIR}/lockstepTorchBuild.cmake")
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstepTorchBuild.cmake" DESTINATION "${package}/cmake")
  endif()
  # Lockstep::data, compiled for the Arrow of this build.
  if(TARGET lockstep_data)
    install(TARGETS lockstep_data lockstep_data_index ARCHIVE DESTINATION "${package}/lib")
    lockstep_write_data_build("${CMAKE_CURRENT_BINARY_DIR}/lockstepDataBuild.cmake")
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lockstepDataBuild.cmake" DESTINATION "${package}/cmake")
  endif()
  # Sources of Lockstep::torch, to compile it for another LibTorch, the headers of the folders it uses, and the backend's Python
  # module.
  foreach(folder base sys collective torch)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/${folder}" DESTINATION "${package}/src"
            FILES_MATCHING PATTERN "*.h" PATTERN "torch/*.cpp")
  endforeach()
  install(FILES "${PROJECT_SOURCE_DIR}/src/data/order.h" DESTINATION "${package}/src/data")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/src/torch/" DESTINATION "${package}/c10d_module")

  include(CMakePackageConfigHelpers)
  write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake" DESTINATION "${package}/cmake"
          RENAME lockstep-config.cmake)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/lockstep_libtorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/lockstep_arrow.cmake"
                "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake" DESTINATION "${package}/cmake")
endfunction()

# lockstep_write_torch_build(<file> [<folder>]): writes what Lockstep::torch was compiled for, and the folder of its
# archives if that is not the package's lib/.
function(lockstep_write_torch_build file)
  set(cuda OFF)
  if(EXISTS "${LOCKSTEP_LIBTORCH_ROOT}/lib/libtorch_cuda.so")
    set(cuda ON)
  endif()
  set(lines "set(LOCKSTEP_TORCH_BUILD_VERSION \"${LOCKSTEP_LIBTORCH_VERSION}\")\n")
  string(APPEND lines "set(LOCKSTEP_TORCH_BUILD_CUDA ${cuda})\n")
  if(ARGC GREATER 1)
    string(APPEND lines "set(LOCKSTEP_TORCH_BUILD_FOLDER \"${ARGV1}\")\n")
  endif()
  file(CONFIGURE OUTPUT "${file}" CONTENT "${lines}")
endfunction()

# lockstep_write_data_build(<file> [<folder>]): the same for Lockstep::data and its Arrow.
function(lockstep_write_data_build file)
  set(lines "set(LOCKSTEP_DATA_BUILD_VERSION \"${LOCKSTEP_ARROW_VERSION}\")\n")
  if(ARGC GREATER 1)
    string(APPEND lines "set(LOCKSTEP_DATA_BUILD_FOLDER \"${ARGV1}\")\n")
  endif()
  file(CONFIGURE OUTPUT "${file}" CONTENT "${lines}")
endfunction()

# lockstep_link_cpp_package(<package>): makes the same folder for the build tree, with links to the real places, and the
# link <package>/cmake to its cmake/.
function(lockstep_link_cpp_package package)
  set(tree "${PROJECT_BINARY_DIR}/cpp_package")
  file(MAKE_DIRECTORY "${tree}/include" "${tree}/bin" "${tree}/cmake")
  lockstep_json_include(json_include)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/include/lockstep" "${tree}/include/lockstep" SYMBOLIC)
  file(CREATE_LINK "${json_include}/nlohmann" "${tree}/include/nlohmann" SYMBOLIC)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src" "${tree}/src" SYMBOLIC)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/python/src/torch" "${tree}/c10d_module" SYMBOLIC)
  file(CREATE_LINK "${PROJECT_BINARY_DIR}/src/agent/lockstep-agent" "${tree}/bin/lockstep-agent" SYMBOLIC)

  include(CMakePackageConfigHelpers)
  write_basic_package_version_file("${tree}/cmake/lockstep-config-version.cmake" COMPATIBILITY SameMinorVersion)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake" "${tree}/cmake/lockstep-config.cmake" SYMBOLIC)
  foreach(file lockstep_libtorch.cmake lockstep_arrow.cmake)
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/cmake/${file}" "${tree}/cmake/${file}" SYMBOLIC)
  endforeach()
  get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
  export(TARGETS ${libraries} lockstep_third_party lockstep_warnings
         FILE "${tree}/cmake/lockstepBuildTargets.cmake" NAMESPACE Lockstep::)
  # Libraries of the build tree refer to headers of which an installed package has a copy.
  file(CONFIGURE OUTPUT "${tree}/cmake/lockstepTargets.cmake" @ONLY CONTENT
[[set(LOCKSTEP_PACKAGE_PYTHON "@Python_EXECUTABLE@")
find_dependency(nlohmann_json 3.11 HINTS "@nlohmann_json_DIR@")
include("${CMAKE_CURRENT_LIST_DIR}/lockstepBuildTargets.cmake")
set(LOCKSTEP_TUNE_FOLDER "@PROJECT_BINARY_DIR@/src/tune")
]])

  if(TARGET lockstep_torch)
    lockstep_write_torch_build("${tree}/cmake/lockstepTorchBuild.cmake" "${PROJECT_BINARY_DIR}/src/torch")
  endif()
  if(TARGET lockstep_data)
    lockstep_write_data_build("${tree}/cmake/lockstepDataBuild.cmake" "${PROJECT_BINARY_DIR}/src/data")
  endif()

  file(CREATE_LINK "${tree}/cmake" "${package}/cmake" SYMBOLIC)
endfunction()
