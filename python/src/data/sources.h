#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace arrow::fs {
class FileSystem;
}

namespace lockstep::python {

/// The functions that open sources.
void bind_sources(pybind11::module_& module);

/// An object like pyarrow.fs.FileSystem, as a file system for reading. Its methods are called with the GIL, from any
/// thread. Null for None.
std::shared_ptr<arrow::fs::FileSystem> to_file_system(const pybind11::object& object);

/// A reference that any thread may drop.
std::shared_ptr<PyObject> shared_reference(pybind11::object object);

}  // namespace lockstep::python
