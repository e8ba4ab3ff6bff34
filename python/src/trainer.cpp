#include <lockstep/callback.h>
#include <pybind11/stl.h>

#include <atomic>
#include <csignal>

#include "base/failure.h"
#include "base/ids.h"
#include "bindings.h"
#include "convert.h"
#include "engine/local/local_engine.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "sys/node.h"
#include "sys/signals.h"
#include "train/launch.h"

namespace lockstep::python {
namespace {

py::list failures_of(const std::vector<Failure>& failures) {
  py::list list;
  for (const Failure& failure : failures) list.append(to_python(lockstep::to_value(failure, false)));
  return list;
}

std::atomic<int> last_signal = 0;

/// Python ends as usual, with all that is registered for its end; then the process dies of the signal, which is what
/// shells and those who sent it look for.
void end_by_signal(int number) {
  if (last_signal.exchange(number) != 0) return;
  const auto die = [] {
    std::signal(last_signal, SIG_DFL);
    std::raise(last_signal);
  };
  Py_AtExit(die);  // where there is no room the exit code is 1
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
  void on_attempt_failed(const std::vector<Failure>& failures, bool again) override {
    call("on_attempt_failed", [&] { return py::make_tuple(failures_of(failures), again); });
  }
  void on_end(const Result& result) override {
    call("on_end", [&] { return py::make_tuple(result); });
  }

 private:
  /// Whether the hook gave True.
  template <class Arguments>
  bool call(const char* hook, Arguments&& arguments) {
    const py::gil_scoped_acquire locked;
    try {
      const py::object answer = object_.attr(hook)(*py::tuple(arguments()));
      if (py::cast<bool>(object_.attr("take_stop_request")())) request_stop();
      return answer.ptr() == Py_True;
    } catch (const py::error_already_set& error) {
      const std::string type = py::str(error.type().attr("__name__"));
      throw Error(type + ": " + std::string(py::str(error.value())));
    }
  }

  py::object object_;
  std::string name_;
  bool wants_all_ranks_;
  bool may_stop_;
};

template <class T>
std::optional<T> optional_of(const py::dict& dict, const char* key) {
  if (!dict.contains(key) || dict[key].is_none()) return std::nullopt;
  return py::cast<T>(dict[key]);
}

/// sys.argv, as far as it is text.
std::vector<std::string> arguments() {
  std::vector<std::string> given;
  for (const py::handle each : py::getattr(py::module_::import("sys"), "argv", py::list()))
    given.push_back(py::cast<std::string>(py::str(each).attr("encode")("utf-8", "replace")));
  return given;
}

RunConfig run_config_of(const py::dict& dict) {
  RunConfig run;
  run.name = optional_of<std::string>(dict, "name").value_or("");
  run.storage_path = optional_of<std::string>(dict, "storage_path").value_or("");
  run.verbose = py::cast<int>(dict["verbose"]);
  run.log_to_console = py::cast<std::string>(dict["log_to_console"]);
  run.failure.max_failures = py::cast<int>(dict["max_failures"]);
  if (const auto hang = optional_of<double>(dict, "hang_timeout"))
    run.hang_timeout = std::chrono::duration<double>(*hang);
  run.heartbeat_timeout = std::chrono::duration<double>(py::cast<double>(dict["heartbeat_timeout"]));
  run.max_report_size = py::cast<int>(dict["max_report_size"]);
  run.stop = optional_of<std::map<std::string, double>>(dict, "stop").value_or(std::map<std::string, double>{});
  const auto checkpoint = py::cast<py::dict>(dict["checkpoint"]);
  run.checkpoint.num_to_keep = optional_of<int>(checkpoint, "num_to_keep");
  run.checkpoint.score_attribute = optional_of<std::string>(checkpoint, "score_attribute").value_or("");
  run.checkpoint.score_order = py::cast<std::string>(checkpoint["score_order"]);
  run.checkpoint.keep_all_ranks = py::cast<bool>(checkpoint["keep_all_ranks"]);
  return run;
}

driver::RunPlan plan_of(const py::dict& options, const py::bytes& payload) {
  driver::RunPlan plan;
  plan.trainer = py::cast<std::string>(options["trainer"]);
  plan.options.config = to_value(options["config"], "train_loop_config");
  const auto scaling = py::cast<py::dict>(options["scaling"]);
  plan.options.scaling.num_workers = py::cast<int>(scaling["num_workers"]);
  plan.options.scaling.use_gpu = py::cast<bool>(scaling["use_gpu"]);
  plan.options.scaling.resources_per_worker =
      optional_of<std::map<std::string, double>>(scaling, "resources_per_worker")
          .value_or(std::map<std::string, double>{});
  plan.options.scaling.placement_strategy = py::cast<std::string>(scaling["placement_strategy"]);
  plan.options.run = run_config_of(py::cast<py::dict>(options["run"]));
  plan.program.program = py::cast<std::vector<std::string>>(options["argv"]);
  plan.program.env = py::cast<std::map<std::string, std::string>>(options["env"]);
  plan.program.cwd = py::cast<std::string>(options["cwd"]);
  plan.program.fork_server = true;
  plan.python_path = py::cast<std::vector<std::string>>(options["python_path"]);
  plan.argv = arguments();
  plan.metadata = to_value(options["metadata"], "metadata");
  plan.restore = py::cast<bool>(options["restore"]);
  plan.payload = to_bytes(payload);
  plan.keep_workers = optional_of<bool>(options, "keep_workers").value_or(false);
  plan.record = optional_of<bool>(options, "record").value_or(true);
  plan.replace_workers = optional_of<bool>(options, "replace_workers").value_or(false);
  if (options.contains("rendezvous") && !options["rendezvous"].is_none()) {
    const auto rendezvous = py::cast<py::dict>(options["rendezvous"]);
    plan.rendezvous.emplace();
    plan.rendezvous->hosts = py::cast<std::vector<std::string>>(rendezvous["hosts"]);
    plan.rendezvous->elastic = plan.replace_workers;
    plan.rendezvous->min_workers = optional_of<int>(rendezvous, "min_workers").value_or(0);
  }
  if (options.contains("backend")) plan.backend = to_value(options["backend"], "backend");
  if (options.contains("extra")) plan.extra = to_value(options["extra"], "extra");
  plan.keep_payload = options.contains("function_pkl") && py::object(options["function_pkl"]).is(payload);
  if (options.contains("function_pkl") && !plan.keep_payload)
    plan.function_pkl = to_bytes(py::cast<py::bytes>(options["function_pkl"]));
  plan.function_sha256 = optional_of<std::string>(options, "function_sha256").value_or("");
  return plan;
}

}  // namespace

void bind_trainer(py::module_& module) {
  py::class_<Result>(module, "RunOutcome")
      .def_property_readonly("path", [](const Result& self) { return self.path.string(); })
      .def_property_readonly("state", [](const Result& self) { return to_text(self.state); })
      .def_property_readonly("error", [](const Result& self) { return to_text(self.error); })
      .def_property_readonly("trainer", [](const Result& self) { return to_text(self.trainer); })
      .def_property_readonly("metrics", [](const Result& self) { return to_python(self.metrics); })
      .def_property_readonly("config", [](const Result& self) { return to_python(self.config); })
      .def_readonly("checkpoint", &Result::checkpoint)
      .def_property_readonly("best_checkpoints",
                             [](const Result& self) {
                               py::list list;
                               for (const auto& [checkpoint, metrics] : self.best_checkpoints)
                                 list.append(py::make_tuple(checkpoint, to_python(metrics)));
                               return list;
                             })
      .def_property_readonly("failures", [](const Result& self) { return failures_of(self.failures); });

  module.def("read_run", [](const std::string& path) { return Result::from_path(path); });
  module.def("find_run", [](const std::string& name) -> std::optional<std::string> {
    const auto found = store::find_run(name);
    return found ? std::optional(found->string()) : std::nullopt;
  });
  module.def("check_owner", [](const std::string& path) { store::RunDirectory(path).check_owner(); });
  module.def("read_function", [](const std::string& path) {
    const train::SavedFunction saved = train::read_function(path);
    return py::make_tuple(to_python_bytes(saved.bytes), saved.sha256);
  });
  module.def("read_json", [](const std::string& run, const std::string& name) {
    return to_python(store::RunDirectory(run).read_json(name));
  });
  module.def("check_run_name", [](const std::string& name) { check_run_name(name); });
  module.def("check_hosts", [](const std::vector<std::string>& hosts) { driver::slots_of(hosts); });
  module.def("node_resources", &sys::node_resources);
  module.def("default_storage_path", [] { return store::default_storage_path().string(); });
  // Destroyed without the GIL: the agent may take a moment to end.
  struct WithoutGil {
    void operator()(train::AgentSlot* agent) const {
      const py::gil_scoped_release unlocked;
      delete agent;
    }
  };
  py::class_<train::AgentSlot, std::unique_ptr<train::AgentSlot, WithoutGil>>(module, "AgentSlot")
      .def(py::init<>())
      .def("stop", &train::AgentSlot::stop, py::call_guard<py::gil_scoped_release>())
      .def("kept", &train::AgentSlot::kept, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("in_run", &train::AgentSlot::in_run);

  module.def(
      "run",
      [](const py::dict& options, const py::bytes& payload, const py::list& callbacks, const py::object& resume_from,
         bool handle_signals, train::AgentSlot* agent) {
        std::optional<sys::SignalWatch> signals;
        if (handle_signals) signals.emplace();
        // One that Python took before is Python's; later ones are the run's.
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        driver::RunPlan plan = plan_of(options, payload);
        plan.signals = signals ? &*signals : nullptr;
        if (!resume_from.is_none()) plan.options.resume_from = py::cast<Checkpoint>(resume_from);
        std::vector<std::unique_ptr<PythonCallback>> hooks;
        for (const py::handle callback : callbacks) {
          hooks.push_back(std::make_unique<PythonCallback>(py::reinterpret_borrow<py::object>(callback)));
          plan.options.run.callbacks.push_back(hooks.back().get());
        }
        driver::RunOutcome outcome;
        {
          const py::gil_scoped_release unlocked;
          outcome = train::launch(std::move(plan), agent);
        }
        py::list values;
        for (const Bytes& value : outcome.values) values.append(to_python_bytes(value));
        return py::make_tuple(std::move(outcome.result), outcome.signal, values);
      },
      py::arg("options"), py::arg("payload"), py::arg("callbacks"), py::arg("resume_from"), py::arg("handle_signals"),
      py::arg("agent") = nullptr);

  module.def("end_by_signal", &end_by_signal, py::arg("number"));
}

}  // namespace lockstep::python
