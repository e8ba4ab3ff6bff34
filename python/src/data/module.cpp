// Data sets for Python. A module apart from _core, because it links the Arrow of one version of pyarrow, which its name
// tells. Batches and schemas cross over as capsules of Arrow's C interfaces.

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <mutex>

#include "base/json.h"
#include "base/utf8.h"
#include "bindings.h"
#include "data/iterator.h"
#include "data/status.h"
#include "sources.h"

namespace lockstep::python {
namespace {

using data::check;
using data::Dataset;
using data::value_of;

void translate(std::exception_ptr pointer) {
  const auto raise = [](const char* type, const std::exception& error) {
    const std::string text = valid_utf8(error.what());
    PyErr_SetString(py::module_::import("lockstep.errors").attr(type).ptr(), text.c_str());
  };
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const PythonError& error) {
    error.restore();
  } catch (const ConfigError& error) {
    raise("ConfigError", error);
  } catch (const StorageError& error) {
    raise("StorageError", error);
  } catch (const Error& error) {
    raise("InternalError", error);
  }
}

py::capsule to_capsule(const arrow::Schema& schema) {
  ArrowSchema* structure = nullptr;
  auto capsule = capsule_of("arrow_schema", structure);
  check(arrow::ExportSchema(schema, structure), "the schema");
  return capsule;
}

/// A pass and its threads.
class Pass {
 public:
  explicit Pass(std::shared_ptr<data::Pass> pass) : threads_(std::move(pass)) {}

  std::shared_ptr<data::Pass> get() const {
    auto pass = std::static_pointer_cast<data::Pass>(threads_.work());
    if (!pass) throw ConfigError("[data] the interpreter ends; nothing can be read any more");
    return pass;
  }

  mutable std::mutex mutex;  ///< for users who share a loop between threads

 private:
  Threads threads_;
};

class Iterator {
 public:
  /// Without the GIL: rows may have to be counted.
  Iterator(const Dataset& dataset, const data::IteratorOptions& options)
      : iterator_(dataset, options), is_shared_(options.cache && !options.order.shuffle) {}

  std::unique_ptr<Pass> begin(std::int64_t batch_size, bool drop_last) {
    return std::make_unique<Pass>(watched([&] {
      const std::lock_guard lock(mutex_);
      return iterator_.begin(batch_size, drop_last);
    }));
  }

  /// At most `count` batches in one. The position stays: see move().
  std::optional<Batch> take(const Pass& running, std::int64_t count) {
    const auto pass = running.get();
    for (bool ready = false; !ready;) {
      {
        const py::gil_scoped_release released;
        const std::lock_guard lock(running.mutex);
        ready = pass->wait(std::chrono::milliseconds(100), count);
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    const py::gil_scoped_release released;
    const std::lock_guard lock(running.mutex);
    auto batch = pass->next(count);
    if (!batch) return std::nullopt;
    // Rows in shared memory are this rank's alone, except one that may fill up the last batch.
    return Batch{std::move(batch), pass->is_borrowed() || (is_shared_ && pass->given() == pass->batches())};
  }

  /// The user has had so many batches of the pass.
  void move(const Pass& running, std::int64_t given) {
    const auto pass = running.get();
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    iterator_.move(*pass, given);
  }
  void finish(const Pass& running) {
    const auto pass = running.get();
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    iterator_.finish(*pass);
  }

  std::string state() {
    const py::gil_scoped_release released;  // which the thread that holds the mutex may wait for
    const std::lock_guard lock(mutex_);
    return to_json(iterator_.cursor().state());
  }
  void load_state(const std::string& text) {
    const py::gil_scoped_release released;  // which the thread that holds the mutex may wait for
    const std::lock_guard lock(mutex_);
    iterator_.cursor().load_state(Value::parse(text));
  }
  std::int64_t epoch() {
    const py::gil_scoped_release released;  // which the thread that holds the mutex may wait for
    const std::lock_guard lock(mutex_);
    return iterator_.cursor().epoch();
  }
  std::int64_t next_epoch() {
    const py::gil_scoped_release released;  // which the thread that holds the mutex may wait for
    const std::lock_guard lock(mutex_);
    return iterator_.cursor().next_epoch();
  }
  void set_epoch(std::int64_t epoch) {
    const py::gil_scoped_release released;  // which the thread that holds the mutex may wait for
    const std::lock_guard lock(mutex_);
    iterator_.cursor().set_epoch(epoch);
  }

 private:
  std::mutex mutex_;  ///< for users who share an iterator between threads
  data::Iterator iterator_;
  bool is_shared_;
};

}  // namespace

PYBIND11_MODULE(LOCKSTEP_MODULE, module) {
  py::register_local_exception_translator(&translate);

  py::class_<Batch>(module, "Batch")
      .def_readonly("is_borrowed", &Batch::is_borrowed)
      .def("__len__", [](const Batch& batch) { return batch.batch->num_rows(); })
      .def("arrays", &Batch::arrays, py::kw_only(), py::arg("writable"))
      .def("__arrow_c_array__", &Batch::export_to, py::arg("requested_schema") = py::none());
  const auto released = py::call_guard<py::gil_scoped_release>();
  py::class_<Dataset> dataset(module, "Dataset");
  dataset
      .def("__arrow_c_schema__",
           [](const Dataset& self) { return to_capsule(*watched([&] { return self.schema(); })); })
      .def("count", [](const Dataset& self) { return watched([&] { return self.count(); }); })
      .def("fingerprint", [](const Dataset& self) { return watched([&] { return self.fingerprint(); }); })
      .def("plan", &Dataset::plan, released)
      .def("select_columns", &Dataset::select_columns, released)
      .def("limit", &Dataset::limit, released);
  bind_steps(module, dataset);
  bind_sources(module);
  Threads::end_with_interpreter();

  py::class_<data::SharedCache, std::shared_ptr<data::SharedCache>>(module, "SharedCache")
      .def_static("join", [](const std::string& name, int ranks) {
        const py::gil_scoped_release released;
        return data::SharedCache::join(name, ranks, data::kSharedBytes);
      });
  // As much memory as the rows of a step need, so at most all that there is.
  module.def("share_whole", [](const std::vector<Dataset>& datasets, const std::string& name, int ranks) {
    std::vector<data::SourcePointer> sources;
    for (const Dataset& each : datasets) sources.push_back(each.source());
    const py::gil_scoped_release released;
    const auto memory =
        static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    data::share_whole(sources, [&] { return data::SharedCache::join(name, ranks, memory); });
  });
  py::class_<Pass>(module, "Pass").def("seconds", [](const Pass& pass) {
    const auto times = pass.get()->times();
    return std::pair(std::chrono::duration<double>(times.reading).count(),
                     std::chrono::duration<double>(times.shuffling).count());
  });
  py::enum_<data::Tail>(module, "Tail")
      .value("pad", data::Tail::pad)
      .value("drop", data::Tail::drop)
      .value("uneven", data::Tail::uneven);
  py::class_<Iterator>(module, "Iterator")
      .def(
          py::init([](const Dataset& dataset, bool shuffle, std::uint64_t seed, std::int64_t window, int rank,
                      int world, data::Tail tail, int prefetch, std::shared_ptr<data::SharedCache> cache) {
            const data::IteratorOptions options{{shuffle, seed, window}, rank, world, tail, prefetch, std::move(cache)};
            return watched([&] { return std::make_unique<Iterator>(dataset, options); });
          }),
          py::kw_only(), py::arg("dataset"), py::arg("shuffle"), py::arg("seed"), py::arg("window"), py::arg("rank"),
          py::arg("world_size"), py::arg("tail"), py::arg("prefetch"), py::arg("cache"))
      .def("begin", &Iterator::begin)
      .def("take", &Iterator::take)
      .def("move", &Iterator::move)
      .def("finish", &Iterator::finish)
      .def("next_epoch", &Iterator::next_epoch)
      .def("state", &Iterator::state)
      .def("load_state", &Iterator::load_state)
      .def("epoch", &Iterator::epoch)
      .def("set_epoch", &Iterator::set_epoch);
}

}  // namespace lockstep::python
