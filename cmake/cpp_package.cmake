# lockstep_install_cpp_package(<package>)
#
# Installs what a C++ program needs: <package>/include, <package>/lib and <package>/cmake, so that
# find_package(lockstep) with lockstep_DIR=<package>/cmake gives the target Lockstep::lockstep.
# Public headers name nlohmann-json, so a copy of the version that we compiled with goes along.
function(lockstep_install_cpp_package package)
  get_target_property(json_includes nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  list(GET json_includes 0 json_include)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${package}/include")
  install(DIRECTORY "${json_include}/nlohmann" DESTINATION "${package}/include" FILES_MATCHING PATTERN "*.hpp")
  install(FILES "${PROJECT_SOURCE_DIR}/licenses/nlohmann_json.txt" DESTINATION "${package}/include/nlohmann"
          RENAME LICENSE.txt)

  get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
  install(TARGETS ${libraries} lockstep_third_party EXPORT lockstep ARCHIVE DESTINATION "${package}/lib")
  # --strip leaves archives alone, and debug information is most of them.
  install(CODE "file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${package}/lib/*.a\")
                execute_process(COMMAND \"${CMAKE_STRIP}\" -g \${archives} COMMAND_ERROR_IS_FATAL ANY)")
  install(EXPORT lockstep DESTINATION "${package}/cmake" FILE lockstepTargets.cmake NAMESPACE Lockstep::)

  # Sources: they are compiled with the LibTorch of the user's project.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/torch" "${PROJECT_SOURCE_DIR}/src/collective" DESTINATION "${package}/src"
          FILES_MATCHING PATTERN "*.h" PATTERN "torch/*.cpp")

  include(CMakePackageConfigHelpers)
  write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake" DESTINATION "${package}/cmake"
          RENAME lockstep-config.cmake)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/lockstep_libtorch.cmake"
                "${CMAKE_CURRENT_BINARY_DIR}/lockstep-config-version.cmake" DESTINATION "${package}/cmake")
endfunction()
