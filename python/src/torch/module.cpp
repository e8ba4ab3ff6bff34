// The c10d backend for Python. Compiled with torch's own copy of pybind11, which knows c10d's types. So it is a
// separate module from _core, for one version of torch, which is part of its name.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <lockstep/error.h>

#include <string>

#include "torch/shared_memory_backend.h"

namespace {

using lockstep::torch::SharedMemoryBackend;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& node,
                                         const std::string& address, bool alone) {
  return c10::make_intrusive<SharedMemoryBackend>(store, rank, size, timeout,
                                                  lockstep::collective::Place{node, address, alone});
}

}  // namespace

PYBIND11_MODULE(LOCKSTEP_MODULE, module) {
  pybind11::register_exception<lockstep::collective::CannotShareMemory>(module, "CannotShareMemory",
                                                                        PyExc_RuntimeError);
  module.def("create", &create, pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"), pybind11::arg("node") = "", pybind11::arg("address") = "",
             pybind11::arg("alone") = false, pybind11::call_guard<pybind11::gil_scoped_release>());
}
