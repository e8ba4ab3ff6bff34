#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "bindings.h"
#include "convert.h"
#include "horovod/rendezvous.h"
#include "store/address.h"
#include "store/find_run.h"
#include "store/function_file.h"
#include "store/run_directory.h"
#include "store/run_settings.h"
#include "train/launch.h"
#include "train/nodes.h"

namespace lockstep::python {
namespace {

std::atomic<int> last_signal = 0;
std::atomic<int> last_code = 0;

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

/// Python exits as usual and runs its exit handlers. Then the process ends with this code.
void end_with_code(int code) {
  if (last_code.exchange(code) != 0) return;
  Py_AtExit([] {
    std::fflush(nullptr);
    ::_exit(last_code);
  });
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
      .def_readonly("world_sizes", &Result::world_sizes)
      .def_property_readonly("failures", [](const Result& self) { return to_python(self.failures); });

  // They may ask an object store.
  const py::call_guard<py::gil_scoped_release> unlocked;
  module.def(
      "read_run", [](const std::string& path) { return Result::from_path(path); }, unlocked);
  module.def(
      "find_run",
      [](const std::string& name) -> std::optional<std::string> {
        const auto found = store::find_run(name);
        return found ? std::optional(found->string()) : std::nullopt;
      },
      unlocked);
  module.def(
      "run_exists", [](const std::string& name) { return store::run_exists(name); }, unlocked);
  module.def(
      "run_to_resume",
      [](const RunConfig& run) -> std::optional<std::string> {
        const auto found = store::run_to_resume(run);
        return found ? std::optional(found->string()) : std::nullopt;
      },
      unlocked);
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
  module.def(
      "start_nodes",
      [](const EngineConfig& engine) {
        const train::EngineNodes nodes = train::nodes_of(engine);
        std::vector<driver::NodeOffer> offers;
        {
          const py::gil_scoped_release unlocked;
          train::ProcessAgents::Watcher watcher;
          watcher.say = [](const std::string& text) { std::fprintf(stderr, "lockstep: %s\n", text.c_str()); };
          nodes.agents.start(watcher);
          offers = nodes.agents.nodes();
        }
        py::list list;
        for (const auto& offer : offers) {
          py::dict resources;
          for (const auto& [name, amount] : offer.amounts) resources[py::str(name)] = driver::to_double(amount);
          resources["GPU"] = offer.gpus.size();
          py::dict node;
          node["name"] = to_text(offer.name);
          node["address"] = offer.address;
          node["resources"] = resources;
          node["works"] = !offer.lost;
          list.append(node);
        }
        return list;
      },
      py::arg("engine"));
  module.def("leases", [] { return train::process_resources().leases(); });
  module.def("default_storage_path", [] { return store::local_path(store::default_storage_path()).string(); });
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
  module.def("end_with_code", &end_with_code, py::arg("code"));
}

}  // namespace lockstep::python
