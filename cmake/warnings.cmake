# Warnings for our own targets (lockstep_library and similar functions link this; third-party headers are system
# headers).

add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>)
