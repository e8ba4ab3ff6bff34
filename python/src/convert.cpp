#include "convert.h"

#include <lockstep/array.h>
#include <pybind11/stl.h>

#include "base/failure.h"

namespace lockstep::python {
namespace {

constexpr int kDeepest = 60;

std::string type_name(const py::handle& object) { return py::str(py::type::handle_of(object).attr("__qualname__")); }

std::string module_name(const py::handle& object) {
  return py::str(py::getattr(py::type::handle_of(object), "__module__", py::str("")));
}

[[noreturn]] void refuse(const py::handle& object, const std::string& path) {
  const std::string module = module_name(object), type = type_name(object);
  std::string message = path + " is a " + (module.empty() || module == "builtins" ? type : module + "." + type) + "; ";
  if (module.starts_with("torch") || module.starts_with("jax"))
    message += "write .item() for one number, or .tolist() for several";
  else if (module.starts_with("tensorflow"))
    message += "write float(...) for one number, or .numpy() for several";
  else
    message += "report None, bool, int, float, str, list, dict, or arrays and tensors of numbers";
  throw py::type_error(message);
}

Value convert(const py::handle& object, const std::string& path, int depth);

std::string text_of(const py::handle& text, const std::string& path, const char* what) {
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) return {utf8, static_cast<std::size_t>(size)};
  PyErr_Clear();
  throw py::type_error(path + " " + what + " " + std::string(py::repr(text)) +
                       ", which has half of a surrogate pair; UTF-8 cannot hold it");
}

std::string key_of(const py::handle& key, const std::string& path) {
  if (PyUnicode_Check(key.ptr())) return text_of(key, path, "has the key");
  if (PyLong_Check(key.ptr()) && !PyBool_Check(key.ptr())) return py::str(key);
  throw py::type_error(path + " has the key " + std::string(py::repr(key)) + " of type " + type_name(key) +
                       "; use str keys");
}

Value convert_int(const py::handle& object, const std::string& path) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return static_cast<std::int64_t>(number);
  const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(object.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::type_error(path + " is an int beyond 64 bits; report it as float(...) or str(...)");
  }
  return static_cast<std::uint64_t>(large);
}

/// A numpy array of numbers, in C order.
Value convert_array(const py::handle& array) {
  const py::buffer_info info = py::reinterpret_borrow<py::buffer>(array).request();
  const auto size = static_cast<std::size_t>(info.size * info.itemsize);
  return Array{py::str(array.attr("dtype").attr("name")),
               {info.shape.begin(), info.shape.end()},
               {static_cast<const std::uint8_t*>(info.ptr), size}};
}

/// A value that is not plain: a scalar, array or tensor of numpy or a framework, or an error.
Value convert_other(const py::handle& object, const std::string& path, int depth) {
  py::object plain;
  try {
    plain = py::module_::import("lockstep._reported").attr("reported")(object);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    throw py::type_error(path + " " + std::string(py::str(error.value())));
  }
  if (plain.ptr() == Py_NotImplemented) refuse(object, path);
  if (type_name(plain) == "ndarray") return convert_array(plain);
  return convert(plain, path, depth + 1);
}

Value convert_dict(const py::dict& from, const std::string& path, int depth) {
  Value::object_t dict;
  dict.reserve(from.size());
  // Insert directly into the underlying vector: ordered_map's own insertion searches all keys each time. A path is
  // built only if an error may need it, because most metrics are plain numbers.
  for (const auto& [key, value] : from) {
    std::string name = key_of(key, path);
    if (!PyUnicode_Check(key.ptr()) && from.contains(name)) continue;  // 1 and "1" are one name
    if (PyFloat_Check(value.ptr())) {
      dict.emplace_back(std::move(name), PyFloat_AS_DOUBLE(value.ptr()));
    } else {
      Value converted = convert(value, path + "[\"" + name + "\"]", depth + 1);
      dict.emplace_back(std::move(name), std::move(converted));
    }
  }
  return dict;
}

Value convert_items(const py::handle& sequence, const std::string& path, int depth) {
  Value list = Value::array();
  std::size_t index = 0;
  for (const py::handle item : sequence)
    list.push_back(convert(item, path + "[" + std::to_string(index++) + "]", depth));
  return list;
}

Value convert(const py::handle& object, const std::string& path, int depth) {
  if (depth > kDeepest)
    throw py::type_error(path + " is nested more than " + std::to_string(kDeepest) + " deep, or contains itself");
  PyObject* const raw = object.ptr();
  if (raw == Py_None) return nullptr;
  if (PyBool_Check(raw)) return raw == Py_True;
  if (PyFloat_Check(raw)) return PyFloat_AS_DOUBLE(raw);
  if (PyLong_Check(raw)) return convert_int(object, path);
  if (PyUnicode_Check(raw)) return text_of(object, path, "is");
  if (PyDict_Check(raw)) return convert_dict(py::reinterpret_borrow<py::dict>(object), path, depth);
  if (PyList_Check(raw) || PyTuple_Check(raw)) return convert_items(object, path, depth + 1);
  return convert_other(object, path, depth);
}

py::object to_numpy(const Array& array) {
  const auto numpy = py::module_::import("numpy");
  const py::bytes data(reinterpret_cast<const char*>(array.data.data()), array.data.size());
  // A copy, because the result of frombuffer is read-only.
  return numpy.attr("frombuffer")(data, py::arg("dtype") = array.dtype)
      .attr("copy")()
      .attr("reshape")(py::tuple(py::cast(array.shape)));
}

}  // namespace

Value to_value(const py::handle& object, const std::string& path) { return convert(object, path, 0); }

py::str to_text(std::string_view text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

py::object to_python(const Value& value) {
  switch (value.type()) {
    case Value::value_t::object: {
      py::dict dict;
      for (const auto& [key, item] : value.get_ref<const Value::object_t&>()) dict[to_text(key)] = to_python(item);
      return dict;
    }
    case Value::value_t::array: {
      py::list list;
      for (const auto& item : value) list.append(to_python(item));
      return list;
    }
    case Value::value_t::string:
      return to_text(value.get_ref<const std::string&>());
    case Value::value_t::boolean:
      return py::bool_(value.get<bool>());
    case Value::value_t::number_integer:
      return py::int_(value.get<std::int64_t>());
    case Value::value_t::number_unsigned:
      return py::int_(value.get<std::uint64_t>());
    case Value::value_t::number_float:
      return py::float_(value.get<double>());
    case Value::value_t::binary:
      if (const auto array = array_in(value)) return to_numpy(*array);
      return to_python_bytes(value.get_binary());
    case Value::value_t::null:
    case Value::value_t::discarded:
      break;
  }
  return py::none();
}

Bytes to_bytes(const py::bytes& bytes) {
  const std::string_view view = bytes;
  const auto* data = reinterpret_cast<const std::uint8_t*>(view.data());
  return {data, data + view.size()};
}

py::bytes to_python_bytes(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

py::list to_python_bytes(const std::vector<Bytes>& values) {
  py::list list;
  for (const Bytes& value : values) list.append(to_python_bytes(value));
  return list;
}

py::list to_python(const std::vector<Failure>& failures) {
  py::list list;
  if (failures.empty()) return list;
  const py::object make = py::module_::import("lockstep.errors").attr("Failure");
  for (const Failure& each : failures) {
    py::list lines;
    for (const std::string& line : each.log_lines) lines.append(to_text(line));
    list.append(make(std::string(to_string(each.kind)), each.rank, to_text(each.node), each.attempt,
                     to_text(each.message), to_text(each.type), to_text(each.traceback), py::tuple(lines), each.time));
  }
  return list;
}

}  // namespace lockstep::python
