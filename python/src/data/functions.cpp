// Python functions in the reading threads of C++.

#include <arrow/array/array_base.h>
#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <pybind11/numpy.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "bindings.h"
#include "data/status.h"

namespace lockstep::python {
namespace {

/// Whether this thread runs a Python function for a data set.
thread_local bool in_function = false;

struct InFunction {
  bool before = std::exchange(in_function, true);
  ~InFunction() { in_function = before; }
};

/// A reference that any thread may drop.
std::shared_ptr<PyObject> held(py::object object) {
  return {object.release().ptr(), [](PyObject* pointer) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(pointer);
          }};
}

/// Called with the GIL only.
std::set<Threads*>& all_threads() {
  static auto* const threads = new std::set<Threads*>();
  return *threads;
}
std::vector<std::thread>& ending_threads() {
  static auto* const threads = new std::vector<std::thread>();
  return *threads;
}

/// Of types whose values numpy has in the same form.
std::optional<py::dtype> dtype_of(arrow::Type::type type) {
  switch (type) {
    case arrow::Type::INT8:
      return py::dtype::of<std::int8_t>();
    case arrow::Type::INT16:
      return py::dtype::of<std::int16_t>();
    case arrow::Type::INT32:
      return py::dtype::of<std::int32_t>();
    case arrow::Type::INT64:
      return py::dtype::of<std::int64_t>();
    case arrow::Type::UINT8:
      return py::dtype::of<std::uint8_t>();
    case arrow::Type::UINT16:
      return py::dtype::of<std::uint16_t>();
    case arrow::Type::UINT32:
      return py::dtype::of<std::uint32_t>();
    case arrow::Type::UINT64:
      return py::dtype::of<std::uint64_t>();
    case arrow::Type::FLOAT:
      return py::dtype::of<float>();
    case arrow::Type::DOUBLE:
      return py::dtype::of<double>();
    default:
      return std::nullopt;
  }
}

/// A column as an array without a copy. Nothing if it is not of plain numbers, or has nulls.
std::optional<py::array> array_of(const arrow::ArrayData& data, const py::capsule& owner, bool writable) {
  const auto dtype = dtype_of(data.type->id());
  if (!dtype || data.GetNullCount() != 0) return std::nullopt;
  const auto* begin = data.buffers[1] ? data.buffers[1]->data() + data.offset * dtype->itemsize() : nullptr;
  py::array array(*dtype, {static_cast<py::ssize_t>(data.length)}, {dtype->itemsize()}, begin, owner);
  if (!writable) py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

/// A capsule that keeps it alive.
template <class Held>
py::capsule owner_of(const std::shared_ptr<Held>& held) {
  return py::capsule(new std::shared_ptr<Held>(held),
                     [](void* pointer) { delete static_cast<std::shared_ptr<Held>*>(pointer); });
}

/// The table as functions give it: what files say about fields is not of the new columns.
std::shared_ptr<arrow::Table> without_marks(const arrow::Table& table) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (const auto& field : table.schema()->fields()) fields.push_back(arrow::field(field->name(), field->type()));
  return arrow::Table::Make(arrow::schema(std::move(fields)), table.columns(), table.num_rows());
}

template <class... Arguments>
std::shared_ptr<arrow::Table> called(const std::shared_ptr<PyObject>& function,
                                     const std::shared_ptr<arrow::Table>& table, Arguments... arguments) {
  const py::gil_scoped_acquire gil;
  const InFunction scope;
  try {
    const py::object rows = py::cast(Rows{table});
    const py::object result = py::reinterpret_borrow<py::object>(function.get())(rows, arguments...);
    if (result.is(rows)) return without_marks(*table);
    const py::capsule stream = result.attr("__arrow_c_stream__")();
    auto reader = data::value_of(arrow::ImportRecordBatchReader(stream.get_pointer<ArrowArrayStream>()), "a function");
    return data::value_of(reader->ToTable(), "a function");
  } catch (const py::error_already_set& error) {
    throw PythonError(error);
  }
}

}  // namespace

py::tuple Batch::export_to(const py::object& /* the requested schema, a wish that may be ignored */) const {
  ArrowSchema* schema = nullptr;
  ArrowArray* array = nullptr;
  auto schema_capsule = capsule_of("arrow_schema", schema);
  auto array_capsule = capsule_of("arrow_array", array);
  data::check(arrow::ExportRecordBatch(*batch, array, schema), "a batch");
  return py::make_tuple(std::move(schema_capsule), std::move(array_capsule));
}

py::object Batch::arrays(bool writable) const {
  py::dict made;
  const auto owner = owner_of(batch);
  for (int column = 0; column < batch->num_columns(); ++column) {
    auto array = array_of(*batch->column_data(column), owner, writable);
    if (!array) return py::none();
    made[py::str(batch->column_name(column))] = std::move(*array);
  }
  return made;
}

py::object Rows::arrays(bool writable) const {
  py::dict made;
  const auto owner = owner_of(table);
  for (int column = 0; column < table->num_columns(); ++column) {
    const auto& chunks = table->column(column)->chunks();
    auto array = chunks.size() == 1 ? array_of(*chunks.front()->data(), owner, writable) : std::nullopt;
    if (!array) return py::none();
    made[py::str(table->field(column)->name())] = std::move(*array);
  }
  if (made.size() != static_cast<std::size_t>(table->num_columns())) return py::none();
  return made;
}

py::capsule Rows::export_to(const py::object& /* the requested schema, a wish that may be ignored */) const {
  ArrowArrayStream* stream = nullptr;
  auto capsule = capsule_of("arrow_array_stream", stream);
  data::check(arrow::ExportRecordBatchReader(std::make_shared<arrow::TableBatchReader>(table), stream), "a table");
  return capsule;
}

PythonError::PythonError(const py::error_already_set& error) : value_(held(error.value())) {
  if (error.trace()) PyException_SetTraceback(value_.get(), error.trace().ptr());
}

void PythonError::restore() const { PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value_.get())), value_.get()); }

PythonWatch::~PythonWatch() {
  if (!shown_) return;
  const py::error_scope keep;
  try {
    py::module_::import("lockstep.data._watch").attr("close")();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("the progress of a data set");
  }
}

void PythonWatch::tick(const std::string& step, std::int64_t done, std::int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw PythonError(py::error_already_set());
  shown_ = true;
  try {
    py::module_::import("lockstep.data._watch").attr("show")(step, done, total);
  } catch (const py::error_already_set& error) {
    throw PythonError(error);
  }
}

Threads::Threads(std::shared_ptr<void> work) : work_(std::move(work)), process_(::getpid()) {
  all_threads().insert(this);
}

Threads::~Threads() {
  all_threads().erase(this);
  end();
}

void Threads::end() {
  if (!work_) return;
  if (process_ != ::getpid()) {  // a fork has no threads: joining them would never end
    new std::shared_ptr<void>(std::move(work_));
    return;
  }
  if (in_function) {  // this may be one of the threads, which cannot wait for itself
    ending_threads().emplace_back([work = std::move(work_)]() mutable { work.reset(); });
    return;
  }
  const py::gil_scoped_release released;
  work_.reset();
}

void Threads::end_with_interpreter() {
  const auto end_all = [] {
    const std::set<Threads*> threads = all_threads();
    for (Threads* each : threads)
      if (all_threads().contains(each)) each->end();
    auto ending = std::exchange(ending_threads(), {});
    const py::gil_scoped_release released;
    for (auto& each : ending) each.join();
  };
  py::module_::import("atexit").attr("register")(py::cpp_function(end_all));
}

data::BlockFunction block_function(const py::object& function) {
  return [function = held(function)](const std::shared_ptr<arrow::Table>& table, std::size_t block) {
    return called(function, table, block);
  };
}

data::TableFunction table_function(const py::object& function) {
  return [function = held(function)](const std::shared_ptr<arrow::Table>& table) { return called(function, table); };
}

}  // namespace lockstep::python
