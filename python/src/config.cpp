#include <lockstep/config.h>
#include <lockstep/dataset.h>
#include <pybind11/stl.h>

#include <climits>
#include <cmath>

#include "bindings.h"
#include "store/settings.h"

namespace lockstep::python {
namespace {

using store::each_setting;
using store::HasSettings;
using store::Settings;

/// A setting that is being read, for the errors that name it.
struct Asked {
  const char* where;
  const char* setting;
  py::object given;

  [[noreturn]] void refuse(std::string_view rule) const {
    const py::bytes value = py::repr(given).attr("encode")("utf-8", "backslashreplace");
    store::refuse_setting(where, setting, std::string(value), rule);
  }
};

/// Returns NaN for anything that is not a number; no setting allows NaN.
double number_of(py::handle given) {
  if (!PyLong_Check(given.ptr()) && !PyFloat_Check(given.ptr())) return std::nan("");
  const double number = PyFloat_AsDouble(given.ptr());
  if (number != -1 || PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();  // the int is too large for a double
  return std::nan("");
}

std::optional<std::string> utf8_of(py::handle given) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(given.ptr()) ? PyUnicode_AsUTF8AndSize(given.ptr(), &size) : nullptr;
  if (text != nullptr) return std::string(text, static_cast<std::size_t>(size));
  PyErr_Clear();  // half of a surrogate pair
  return std::nullopt;
}

// Each read() returns false for a value of another type.

bool read(const Asked& asked, bool& out) {
  out = asked.given.ptr() == Py_True;
  return PyBool_Check(asked.given.ptr());
}

bool read(const Asked& asked, int& out) {
  if (PyBool_Check(asked.given.ptr()) || !PyLong_Check(asked.given.ptr())) return false;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(asked.given.ptr(), &overflow);
  if (overflow > 0 || number > INT_MAX) asked.refuse("it must be less than 2**31");
  if (overflow < 0 || number < INT_MIN) return false;
  out = static_cast<int>(number);
  return true;
}

/// An int, or a pair of them.
bool read(const Asked& asked, WorkerCount& out) {
  const auto read_int = [&](py::object given, int& to) {
    return read(Asked{asked.where, asked.setting, std::move(given)}, to);
  };
  if (PyTuple_Check(asked.given.ptr()) || PyList_Check(asked.given.ptr())) {
    const py::tuple pair(asked.given);
    if (pair.size() == 2 && read_int(pair[0], out.least) && read_int(pair[1], out.most)) return true;
    asked.refuse("it must be (minimum, maximum), two ints of at least 1, such as (2, 8)");
  }
  int count = 0;
  const bool is_read = read(asked, count);
  out = count;
  return is_read;
}

bool read(const Asked& asked, std::int64_t& out) {
  if (PyBool_Check(asked.given.ptr()) || !PyLong_Check(asked.given.ptr())) return false;
  int overflow = 0;
  out = PyLong_AsLongLongAndOverflow(asked.given.ptr(), &overflow);
  return overflow == 0;
}

bool read(const Asked& asked, std::uint64_t& out) {
  if (PyBool_Check(asked.given.ptr()) || !PyLong_Check(asked.given.ptr())) return false;
  out = PyLong_AsUnsignedLongLong(asked.given.ptr());
  if (PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();  // negative or too large
  return false;
}

/// If the default is empty, it is written as None, and an empty text is refused.
bool read(const Asked& asked, std::string& out) {
  if (out.empty() && asked.given.is_none()) return true;
  if (!py::isinstance<py::str>(asked.given)) return false;
  const auto text = utf8_of(asked.given);
  if (!text) asked.refuse("it must be text that UTF-8 can hold: it has half of a surrogate pair");
  if (out.empty() && text->empty()) return false;
  out = *text;
  return true;
}

bool read(const Asked& asked, std::filesystem::path& out) {
  std::string text;
  const bool is_read = read(asked, text);
  out = text;
  return is_read;
}

bool read(const Asked& asked, std::chrono::duration<double>& out) {
  py::object given = asked.given;
  if (PyBool_Check(given.ptr())) return false;
  if (py::isinstance(given, py::module_::import("datetime").attr("timedelta"))) given = given.attr("total_seconds")();
  out = std::chrono::duration<double>(number_of(given));
  return true;
}

template <class T>
bool read(const Asked& asked, std::optional<T>& out) {
  out.reset();
  return asked.given.is_none() || read(asked, out.emplace());
}

bool read(const Asked& asked, std::map<std::string, double>& out) {
  if (asked.given.is_none()) return true;
  if (!py::isinstance(asked.given, py::module_::import("collections.abc").attr("Mapping"))) return false;
  for (const py::handle item : asked.given.attr("items")()) {
    const auto pair = py::cast<py::tuple>(item);
    const auto name = utf8_of(pair[0]);
    if (!name) return false;
    out[*name] = number_of(pair[1]);
  }
  return true;
}

/// Names; None stands for the default.
bool read(const Asked& asked, std::vector<std::string>& out) {
  if (asked.given.is_none()) return true;
  if (!PyList_Check(asked.given.ptr()) && !PyTuple_Check(asked.given.ptr()) && !PyAnySet_Check(asked.given.ptr()))
    return false;
  out.clear();
  for (const py::handle item : asked.given) {
    const auto name = utf8_of(item);
    if (!name) return false;
    out.push_back(*name);
  }
  return true;
}

/// A nested configuration: a dataclass, whose _to_core() returns the struct.
template <HasSettings Struct>
bool read(const Asked& asked, Struct& out) {
  if (asked.given.is_none()) return true;
  if (py::isinstance<py::type>(asked.given) || !py::hasattr(asked.given, "_to_core")) return false;
  const py::object inside = asked.given.attr("_to_core")();
  if (!py::isinstance<Struct>(inside)) return false;
  out = py::cast<Struct>(inside);
  return true;
}

/// The struct with the attributes of `given`; those in `instead` take precedence.
template <class Struct>
Struct struct_of(const py::object& given, const py::kwargs& instead) {
  Struct made;
  const auto asked = [&](const char* name) {
    return Asked{Settings<Struct>::kName, name,
                 instead.contains(name) ? py::object(instead[name]) : py::object(given.attr(name))};
  };
  each_setting<Struct>([&](const auto& setting) {
    const Asked value = asked(setting.name);
    if (!read(value, made.*setting.field)) value.refuse("it must be " + std::string(setting.must_be));
  });
  if (const auto problem = store::problem_of(made)) asked(std::string(problem->setting).c_str()).refuse(problem->rule);
  return made;
}

template <class T>
py::object shown(const T& value) {
  return py::cast(value);
}
template <class T>
requires requires(const T& value) { value.empty(); }
py::object shown(const T& value) { return value.empty() ? py::object(py::none()) : py::cast(value); }
py::object shown(const WorkerCount& value) {
  return value.is_elastic() ? py::object(py::make_tuple(value.least, value.most)) : py::cast(value.least);
}
py::object shown(const std::filesystem::path& value) { return shown(value.native()); }
py::object shown(const std::chrono::duration<double>& value) { return py::cast(value.count()); }
template <class T>
py::object shown(const std::optional<T>& value) {
  return value ? shown(*value) : py::object(py::none());
}

template <class Struct>
void bind_settings(py::module_& module) {
  py::class_<Struct> bound(module, Settings<Struct>::kName);
  bound.def(py::init<>());
  bound.def(py::init(&struct_of<Struct>), py::arg("given"));
  bound.def(
      "__eq__", [](const Struct& self, const Struct& other) { return self == other; }, py::is_operator());
  bound.attr("__hash__") = py::none();
  py::list names;
  each_setting<Struct>([&](const auto& setting) {
    names.append(setting.name);
    bound.def_property_readonly(setting.name,
                                [field = setting.field](const Struct& self) { return shown(self.*field); });
  });
  bound.attr("names") = py::tuple(names);
}

}  // namespace

void bind_config(py::module_& module) {
  bind_settings<ScalingConfig>(module);
  bind_settings<FailureConfig>(module);
  bind_settings<CheckpointConfig>(module);
  bind_settings<EngineConfig>(module);
  bind_settings<RunConfig>(module);
  bind_settings<DataConfig>(module);
}

}  // namespace lockstep::python
