find_package(GTest 1.12 REQUIRED)
include(GoogleTest)

# lockstep_test(<folder> SOURCES <file>... [DEPENDS <folder or target>...] [OWN_MAIN] [TIMEOUT <seconds>])
#
# The test program <folder>_test of tests/<folder>; each of its cases is one test of ctest, labelled <folder>. OWN_MAIN:
# a source defines main(), for programs that are started again in other roles.
function(lockstep_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OWN_MAIN" "TIMEOUT" "SOURCES;DEPENDS")
  lockstep_check_arguments("lockstep_test(${folder})" "${arg_UNPARSED_ARGUMENTS}" "${arg_SOURCES}")

  set(target ${folder}_test)
  lockstep_executable(${target} SOURCES ${arg_SOURCES} DEPENDS ${arg_DEPENDS} GTest::gmock)
  if(NOT arg_OWN_MAIN)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  gtest_discover_tests(
    ${target}
    TEST_PREFIX ${folder}.
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${folder} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${LOCKSTEP_SANITIZER_OPTIONS}")
endfunction()
