# The examples with LibTorch; included by CMakeLists.txt where LibTorch is.

set(digits_csv "${CMAKE_CURRENT_BINARY_DIR}/digits.csv")
add_custom_command(
  OUTPUT "${digits_csv}"
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/torch_digits_data.py" "${digits_csv}"
  DEPENDS "${CMAKE_CURRENT_LIST_DIR}/torch_digits_data.py"
  COMMENT "Writing digits.csv"
  VERBATIM)
lockstep_executable(example_torch_minimal SOURCES "${CMAKE_CURRENT_LIST_DIR}/torch_minimal.cpp")
lockstep_executable(example_torch_digits SOURCES "${CMAKE_CURRENT_LIST_DIR}/torch_digits.cpp" "${digits_csv}")
target_compile_definitions(example_torch_digits PRIVATE "DIGITS_CSV=\"${digits_csv}\"")

foreach(name minimal digits)
  lockstep_link(example_torch_${name} lockstep_torch)
  add_dependencies(example_torch_${name} lockstep-agent)
  if(LOCKSTEP_BUILD_TESTS)
    add_test(NAME example_torch_${name} COMMAND example_torch_${name})
    set_tests_properties(
      example_torch_${name}
      PROPERTIES ENVIRONMENT "LOCKSTEP_AGENT=$<TARGET_FILE:lockstep-agent>;LOCKSTEP_STORAGE_PATH=${CMAKE_CURRENT_BINARY_DIR}/results"
                 LABELS torch)
  endif()
endforeach()
if(LOCKSTEP_BUILD_TESTS)
  set_tests_properties(example_torch_minimal PROPERTIES PASS_REGULAR_EXPRESSION "y = 2[.]00 x [+] 1[.]00")
  set_tests_properties(example_torch_digits PROPERTIES PASS_REGULAR_EXPRESSION "test accuracy: 9[5-9][.]")
endif()
