// GPU tensors. Compiled if LibTorch has CUDA and its headers are found (lockstep_libtorch.cmake). Not yet tested on a
// real GPU.

#include <lockstep/error.h>

#include "torch/group.h"

#ifdef LOCKSTEP_WITH_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace lockstep::torch {

#ifdef LOCKSTEP_WITH_NCCL

TypedBackend make_gpu_backend(const Store& store, int rank, int world, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return {c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world, std::move(options)),
          c10d::ProcessGroup::BackendType::NCCL};
}

#else

TypedBackend make_gpu_backend(const Store& /*store*/, int /*rank*/, int /*world*/,
                              std::chrono::milliseconds /*timeout*/) {
  throw ConfigError(
      "[join] this worker has a GPU, but the program was built without NCCL; install the headers of CUDA and NCCL "
      "beside "
      "torch and configure the project again, or hide the GPUs with CUDA_VISIBLE_DEVICES=");
}

#endif

}  // namespace lockstep::torch
