#pragma once

#include <lockstep/checkpoint.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

#include "store/part_writer.h"

namespace lockstep::python {

namespace py = pybind11;

/// A dict checkpoint encoded by Python; keeps the buffers.
struct EncodedDict {
  EncodedDict(std::string text, const py::sequence& arrays, const py::object& pickled);
  store::DictParts view() const;

  std::string data;
  std::vector<Tensor> tensors;
  std::vector<py::buffer_info> buffers;
  std::optional<py::bytes> objects;
};

/// An array's bytes for Python's buffer protocol; keeps the checkpoint alive.
struct TensorView {
  std::span<const std::byte> bytes;
  Checkpoint owner;
};

}  // namespace lockstep::python
