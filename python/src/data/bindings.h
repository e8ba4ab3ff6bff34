#pragma once

#include <arrow/c/abi.h>
#include <arrow/type_fwd.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "data/dataset.h"
#include "data/watch.h"

/// What the sources of the module share.
namespace lockstep::python {

namespace py = pybind11;

/// A capsule that owns a structure of the C interface, unless somebody has taken the contents.
template <class Structure>
py::capsule capsule_of(const char* name, Structure*& structure) {
  structure = new Structure{};
  return py::capsule(structure, name, [](PyObject* capsule) {
    auto* held = static_cast<Structure*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (held->release) held->release(held);
    delete held;
  });
}

/// A record batch on its way to Python.
struct Batch {
  std::shared_ptr<arrow::RecordBatch> batch;
  bool is_borrowed;

  py::tuple export_to(const py::object& requested_schema) const;
  /// A dict of numpy arrays, without a copy; None if a column is not of plain numbers, or has nulls.
  py::object arrays(bool writable) const;
};

/// A table on its way to Python.
struct Rows {
  std::shared_ptr<arrow::Table> table;

  py::capsule export_to(const py::object& requested_schema) const;
  /// As Batch::arrays(); None also if a column is in several pieces, or two have the same name.
  py::object arrays(bool writable) const;
};

/// An exception of a Python function, on its way through threads that do not hold the GIL.
class PythonError : public std::exception {
 public:
  /// With the GIL.
  explicit PythonError(const py::error_already_set& error);
  const char* what() const noexcept override { return "a Python function failed"; }
  /// With the GIL.
  void restore() const;

 private:
  std::shared_ptr<PyObject> value_;
};

/// Shows the progress of long work on a terminal, and ends it when a signal handler raises, as for Ctrl-C.
class PythonWatch final : public data::Watch {
 public:
  ~PythonWatch() override;
  void tick(const std::string& step, std::int64_t done, std::int64_t total) override;

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  bool shown_ = false;
};

/// Calls what may read rows, without the GIL.
template <class Call>
auto watched(const Call& call) {
  PythonWatch watch;
  const py::gil_scoped_release released;
  const data::Watch::Scope scope(watch);
  return call();
}

/// Threads that may call Python functions, as of a pass. They are ended without the GIL, which they may wait for, and
/// before the interpreter ends, because they could not get the GIL any more. With the GIL.
class Threads {
 public:
  explicit Threads(std::shared_ptr<void> work);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Null after the threads were ended.
  const std::shared_ptr<void>& work() const { return work_; }
  void end();
  /// Registers what ends all threads with the interpreter's exit.
  static void end_with_interpreter();

 private:
  std::shared_ptr<void> work_;
  int process_;
};

/// A function of a block and its number: it gets Rows and gives an object with `__arrow_c_stream__`, or the same Rows,
/// whose arrays it may have changed in place.
data::BlockFunction block_function(const py::object& function);
/// A function of all rows.
data::TableFunction table_function(const py::object& function);

/// The methods of Dataset that make steps, and streams.
void bind_steps(py::module_& module, py::class_<data::Dataset>& dataset);

}  // namespace lockstep::python
