#include <lockstep/error.h>

#include "bindings.h"
#include "convert.h"

namespace lockstep::python {
namespace {

/// The classes of lockstep.errors, in the order of set_error_types; leaked, so that they outlive the interpreter's end.
struct ErrorTypes {
  py::object config, storage, engine, timeout, internal;
};
ErrorTypes* types = nullptr;

/// A message may quote bytes of a file that are not UTF-8.
void raise(const py::object& type, const std::exception& error) {
  PyErr_SetObject(type.ptr(), to_text(error.what()).ptr());
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const ConfigError& error) {
    raise(types->config, error);
  } catch (const StorageError& error) {
    raise(types->storage, error);
  } catch (const TimeoutError& error) {
    raise(types->timeout, error);
  } catch (const EngineError& error) {
    raise(types->engine, error);
  } catch (const Error& error) {
    raise(types->internal, error);
  } catch (const Value::exception& error) {
    raise(types->internal, error);
  }
}

}  // namespace

void bind_errors(py::module_& module) {
  const auto builtin = [](PyObject* type) { return py::reinterpret_borrow<py::object>(type); };
  types = new ErrorTypes{builtin(PyExc_ValueError), builtin(PyExc_OSError), builtin(PyExc_RuntimeError),
                         builtin(PyExc_TimeoutError), builtin(PyExc_RuntimeError)};
  module.def("set_error_types", [](py::object config, py::object storage, py::object engine, py::object timeout,
                                   py::object internal) {
    *types = {std::move(config), std::move(storage), std::move(engine), std::move(timeout), std::move(internal)};
  });
  py::register_exception_translator(&translate);
}

}  // namespace lockstep::python
