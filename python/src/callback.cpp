#include "callback.h"

#include <pybind11/stl.h>

#include "convert.h"
#include "driver/recorder.h"
#include "sys/node.h"

namespace lockstep::python {
namespace {

/// The text of an object, whatever its __str__ does. Surrogates are escaped.
std::string text_of(const py::handle& object) {
  const auto text = py::reinterpret_steal<py::object>(PyObject_Str(object.ptr()));
  if (!text) {
    PyErr_Clear();
    return "(its text is unknown: __str__ failed)";
  }
  const auto bytes =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

/// Throws what a callback raised, as an error of the core.
[[noreturn]] void throw_in_core(const py::error_already_set& error) {
  if (error.matches(PyExc_KeyboardInterrupt)) throw driver::InterruptError();
  throw Error(text_of(error.type().attr("__name__")) + ": " + text_of(error.value()));
}

/// Calls into Python, which may raise.
template <class Body>
auto calling(Body&& body) {
  const py::gil_scoped_acquire locked;
  try {
    return body();
  } catch (const py::error_already_set& error) {
    throw_in_core(error);
  }
}

/// A Python object with the hooks of lockstep.Callback.
class PythonCallback : public Callback {
 public:
  explicit PythonCallback(py::object object)
      : object_(std::move(object)),
        name_(py::str(object_.attr("name"))),
        wants_all_ranks_(py::cast<bool>(object_.attr("wants_all_ranks")())),
        may_stop_(py::cast<bool>(object_.attr("may_stop")())) {}

  std::string name() const override { return name_; }
  bool wants_all_ranks() const override { return wants_all_ranks_; }
  bool may_stop() const override { return may_stop_; }
  void on_start(const RunInfo& info) override {
    call("on_start", [&] {
      py::dict run;
      run["name"] = info.name;
      run["path"] = info.path.string();
      run["trial_id"] = info.trial_id;
      run["experiment_id"] = info.experiment_id;
      run["config"] = to_python(info.config);
      run["world_size"] = info.world_size;
      run["trainer"] = info.trainer;
      run["hostname"] = sys::host_name();
      run["node_ip"] = sys::node_ip();
      return py::make_tuple(run);
    });
  }
  void on_attempt_started(int attempt) override {
    call("on_attempt_started", [&] { return py::make_tuple(attempt); });
  }
  void on_result(const Value& metrics) override {
    call("on_result", [&] { return py::make_tuple(to_python(metrics)); });
  }
  bool should_stop(const Value& metrics) override {
    return call("should_stop", [&] { return py::make_tuple(to_python(metrics)); });
  }
  void on_report(const std::vector<Value>& metrics) override {
    call("on_report", [&] {
      py::list list;
      for (const Value& each : metrics) list.append(to_python(each));
      return py::make_tuple(list);
    });
  }
  void on_checkpoint(const Checkpoint& checkpoint, const Value& metrics) override {
    call("on_checkpoint", [&] { return py::make_tuple(checkpoint, to_python(metrics)); });
  }
  void on_validated(const Checkpoint& checkpoint, const Value& metrics) override {
    call("on_validated", [&] { return py::make_tuple(checkpoint, to_python(metrics)); });
  }
  void on_attempt_failed(const std::vector<Failure>& failures, bool again) override {
    call("on_attempt_failed", [&] { return py::make_tuple(to_python(failures), again); });
  }
  void on_end(const Result& result) override {
    call("on_end", [&] { return py::make_tuple(result); });
  }

 private:
  /// Whether the hook returned True.
  template <class Arguments>
  bool call(const char* hook, Arguments&& arguments) {
    return calling([&] {
      const py::object answer = object_.attr(hook)(*py::tuple(arguments()));
      if (py::cast<bool>(object_.attr("take_stop_request")())) request_stop();
      return answer.ptr() == Py_True;
    });
  }

  py::object object_;
  std::string name_;
  bool wants_all_ranks_;
  bool may_stop_;
};

/// A lockstep._hooks.BackendHooks.
class PythonHooks : public driver::Hooks {
 public:
  explicit PythonHooks(py::object object) : object_(std::move(object)) {}

  std::string name() const override {
    return calling([&] { return std::string(py::str(object_.attr("name"))); });
  }
  void before(driver::WorkerCalls& workers, bool kept) override { run("before", workers, kept); }
  void after(driver::WorkerCalls& workers) override { run("after", workers); }

 private:
  template <class... Arguments>
  void run(const char* hook, driver::WorkerCalls& workers, Arguments... arguments) {
    const auto call = [&workers](std::optional<int> rank, const py::bytes& payload) {
      const Bytes bytes = to_bytes(payload);
      std::vector<Bytes> values;
      {
        const py::gil_scoped_release unlocked;
        values = workers.call(rank, bytes);
      }
      return to_python_bytes(values);
    };
    calling([&] { object_.attr(hook)(py::cpp_function(call), workers.size(), arguments...); });
  }

  py::object object_;
};

/// A lockstep._validation.Validator.
class PythonValidations : public driver::Validations {
 public:
  explicit PythonValidations(py::object object) : object_(std::move(object)) {}

  std::set<int> waiting() override {
    return calling([&] { return py::cast<std::set<int>>(object_.attr("waiting")()); });
  }
  bool goes_on() override {
    return calling([&] { return py::cast<bool>(object_.attr("goes_on")()); });
  }
  std::map<int, Value> take() override {
    return calling([&] {
      std::map<int, Value> found;
      for (const auto& [seq, metrics] : py::cast<py::dict>(object_.attr("take")()))
        found.emplace(py::cast<int>(seq), to_value(metrics, "metrics"));
      return found;
    });
  }

 private:
  py::object object_;
};

}  // namespace

std::unique_ptr<Callback> callback_of(py::object object) { return std::make_unique<PythonCallback>(std::move(object)); }

std::unique_ptr<driver::Hooks> hooks_of(py::object object) { return std::make_unique<PythonHooks>(std::move(object)); }

std::unique_ptr<driver::Validations> validations_of(py::object object) {
  return std::make_unique<PythonValidations>(std::move(object));
}

}  // namespace lockstep::python
