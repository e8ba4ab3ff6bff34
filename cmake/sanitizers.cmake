# LOCKSTEP_SANITIZE=address|thread instruments the whole tree. LOCKSTEP_SANITIZER_OPTIONS is the
# environment variable (one only: gtest_discover_tests takes no list) that its tests run with.

set(LOCKSTEP_SANITIZER_OPTIONS "")
if(LOCKSTEP_SANITIZE STREQUAL "address")
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
  set(LOCKSTEP_SANITIZER_OPTIONS
      "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1")
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread)
  # A child forked while other threads run may continue until its exec.
  set(LOCKSTEP_SANITIZER_OPTIONS "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0")
elseif(LOCKSTEP_SANITIZE)
  message(FATAL_ERROR "LOCKSTEP_SANITIZE is '${LOCKSTEP_SANITIZE}'; use address or thread, or leave it empty.")
endif()

if(LOCKSTEP_SANITIZE)
  add_compile_options(${sanitizer_flags} -fno-omit-frame-pointer -O1)
  add_link_options(${sanitizer_flags})
endif()
