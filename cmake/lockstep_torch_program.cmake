# lockstep_torch_program(<target>): the executable <target> uses <lockstep/torch.h>, with the precompiled headers of
# lockstep_torch. Those fit only what is compiled with the same flags, so the program is compiled as a library is.
function(lockstep_torch_program target)
  lockstep_link(${target} lockstep_torch)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM lockstep_torch)
endfunction()
