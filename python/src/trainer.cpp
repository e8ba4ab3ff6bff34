#include <pybind11/stl.h>

#include <atomic>
#include <csignal>

#include "bindings.h"
#include "convert.h"
#include "horovod/rendezvous.h"
#include "store/find_run.h"
#include "store/function_file.h"
#include "store/run_directory.h"
#include "store/run_settings.h"
#include "train/launch.h"

namespace lockstep::python {
namespace {

std::atomic<int> last_signal = 0;

/// Python exits as usual and runs its exit handlers. Then the process dies of the signal, as shells and the sender
/// expect.
void end_by_signal(int number) {
  if (last_signal.exchange(number) != 0) return;
  const auto die = [] {
    std::signal(last_signal, SIG_DFL);
    std::raise(last_signal);
  };
  Py_AtExit(die);  // if it cannot be registered, the exit code is 1
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
      .def_property_readonly("failures", [](const Result& self) { return to_python(self.failures); });

  module.def("read_run", [](const std::string& path) { return Result::from_path(path); });
  module.def("find_run", [](const std::string& name) -> std::optional<std::string> {
    const auto found = store::find_run(name);
    return found ? std::optional(found->string()) : std::nullopt;
  });
  module.def("read_settings", [](const std::string& path) { return store::read_run_settings(path); });
  module.def("check_owner", [](const std::string& path) { store::RunDirectory(path).check_owner(); });
  module.def("read_function", [](const std::string& path) {
    const store::SavedFunction saved = store::read_function(path);
    return py::make_tuple(to_python_bytes(saved.bytes), saved.sha256);
  });
  module.def("read_json", [](const std::string& run, const std::string& name) {
    return to_python(store::RunDirectory(run).read_json(name));
  });
  module.def("check_hosts", [](const std::vector<std::string>& hosts) { horovod::slots_of(hosts); });
  module.def("total_resources", [] { return train::process_resources().total(); });
  module.def("available_resources", [] { return train::process_resources().available(); });
  module.def("declare_resources", &train::declare_resources, py::arg("declared"));
  module.def("leases", [] { return train::process_resources().leases(); });
  module.def("default_storage_path", [] { return store::default_storage_path().string(); });
  // Destroyed without the GIL, because the agent may take a moment to end.
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

  module.def("end_by_signal", &end_by_signal, py::arg("number"));
}

}  // namespace lockstep::python
