#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <lockstep/session.h>

#include "collective/nodes.h"

namespace lockstep::torch {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Store = c10::intrusive_ptr<c10d::Store>;

/// The session of the training function in this process; nullptr outside a worker.
Session* current_session();

/// The process group of the workers; connects them if necessary. Null if there is only one worker.
const Group& group();

/// A backend of c10d and its type.
struct TypedBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10d::ProcessGroup::BackendType type;
};
/// The one place that chooses how ranks exchange CPU tensors: a backend of this rank on `store`. A backend that listens
/// does so on the address of `place`.
TypedBackend make_backend(const std::string& name, const Store& store, const collective::Place& place,
                          std::chrono::milliseconds timeout);
/// The same for GPU tensors: NCCL. Throws ConfigError if this build does not have it.
TypedBackend make_gpu_backend(const Store& store, int rank, int world, std::chrono::milliseconds timeout);

}  // namespace lockstep::torch
