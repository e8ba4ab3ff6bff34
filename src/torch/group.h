#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <lockstep/session.h>

namespace lockstep::torch {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Store = c10::intrusive_ptr<c10d::Store>;

/// The session of the training function that runs in this process; nullptr outside of a worker.
Session* current_session();

/// The workers, joined; joins them if that was not done. Null where there is one.
const Group& group();

/// The one place that knows how ranks exchange data: a backend on `store` for CPU tensors, and its c10d kind.
struct Backend {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10d::ProcessGroup::BackendType type;
};
Backend make_backend(const std::string& name, const Store& store, int rank, int world,
                     std::chrono::milliseconds timeout);
/// The same for GPU tensors: NCCL. Throws ConfigError where this build has none.
Backend make_gpu_backend(const Store& store, int rank, int world, std::chrono::milliseconds timeout);

}  // namespace lockstep::torch
