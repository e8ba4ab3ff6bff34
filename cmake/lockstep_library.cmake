# lockstep_library(<folder> SOURCES <file>... [DEPENDS <folder>...] [NOT_INSTALLED])
#
# The static library lockstep_<folder> (also Lockstep::<folder>) of src/<folder>. DEPENDS names the folders whose
# headers it includes; headers are written "folder/name.h" and <lockstep/name.h>. NOT_INSTALLED: not part of the C++
# package.
function(lockstep_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NOT_INSTALLED" "" "SOURCES;DEPENDS")
  lockstep_check_arguments("lockstep_library(${folder})" "${arg_UNPARSED_ARGUMENTS}" "${arg_SOURCES}")

  set(target lockstep_${folder})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(Lockstep::${folder} ALIAS ${target})
  if(NOT arg_NOT_INSTALLED)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES ${target})
  endif()
  target_include_directories(
    ${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  target_link_libraries(${target} PUBLIC lockstep_third_party PRIVATE "$<BUILD_INTERFACE:lockstep_warnings>")
  lockstep_link(${target} ${arg_DEPENDS})
endfunction()

# lockstep_executable(<target> [OUTPUT_NAME <name>] SOURCES <file>... [DEPENDS <folder or target>...])
function(lockstep_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_NAME" "SOURCES;DEPENDS")
  lockstep_check_arguments("lockstep_executable(${target})" "${arg_UNPARSED_ARGUMENTS}" "${arg_SOURCES}")

  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE lockstep_warnings)
  if(arg_OUTPUT_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  endif()
  lockstep_link(${target} ${arg_DEPENDS})
endfunction()

# Links folders (base) or targets (lockstep_base, CLI11::CLI11). A missing one is an error here; CMake itself would pass
# -lbase to the linker.
function(lockstep_link target)
  get_target_property(type ${target} TYPE)
  set(scope PRIVATE)
  if(type STREQUAL "STATIC_LIBRARY")
    set(scope PUBLIC)
  endif()
  foreach(dependency IN LISTS ARGN)
    if(TARGET lockstep_${dependency})
      target_link_libraries(${target} ${scope} lockstep_${dependency})
    elseif(TARGET ${dependency})
      target_link_libraries(${target} ${scope} ${dependency})
    else()
      message(FATAL_ERROR "${target} depends on ${dependency}, which is neither a folder before it nor a target.")
    endif()
  endforeach()
endfunction()

function(lockstep_check_arguments call unparsed sources)
  if(unparsed)
    message(FATAL_ERROR "${call}: unknown arguments: ${unparsed}")
  elseif(NOT sources)
    message(FATAL_ERROR "${call}: SOURCES is empty")
  endif()
endfunction()
