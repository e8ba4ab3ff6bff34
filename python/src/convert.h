#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::python {

namespace py = pybind11;

/// A Python value as a plain one: None, bool, int, float, str, list, tuple, dict (str or int keys), scalars, arrays and
/// tensors of numbers. Anything else raises TypeError that names `path` (e.g. metrics["loss"]) and says what to write
/// instead.
Value to_value(const py::handle& object, const std::string& path);

/// As a str; bytes that are not UTF-8 are escaped (\xff).
py::str to_text(std::string_view text);

/// The inverse of to_value(); arrays are numpy's.
py::object to_python(const Value& value);

Bytes to_bytes(const py::bytes& bytes);
py::bytes to_python_bytes(const Bytes& bytes);
py::list to_python_bytes(const std::vector<Bytes>& values);

/// As a list of lockstep.errors.Failure.
py::list to_python(const std::vector<Failure>& failures);

}  // namespace lockstep::python
