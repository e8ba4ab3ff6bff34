#pragma once

#include <lockstep/value.h>
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

namespace lockstep::python {

namespace py = pybind11;

/// A Python value as a plain one: None, bool, int, float, str, list, tuple, dict (str or int keys), scalars, arrays and
/// tensors of numbers. Anything else raises TypeError that names `path` (e.g. metrics["loss"]) and says what to write
/// instead.
Value to_value(const py::handle& object, const std::string& path);

/// As a str; what is no UTF-8 is escaped (\xff).
py::str to_text(std::string_view text);

/// The inverse of to_value(); arrays are numpy's.
py::object to_python(const Value& value);

Bytes to_bytes(const py::bytes& bytes);
py::bytes to_python_bytes(const Bytes& bytes);

}  // namespace lockstep::python
