#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.h"
#include "callback.h"
#include "convert.h"
#include "run_plan.h"
#include "train/active_run.h"
#include "train/open_runs.h"

namespace lockstep::python {
namespace {

using Then = sys::SignalWatch::Then;

/// Calls the handlers of signals that Python has received; what they raise is thrown.
void handle_signals() {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// Releases the GIL. The end of the interpreter waits until the thread has it again: a thread that asks for the GIL
/// after that dies in the middle of this code.
struct WithoutGil {
  const train::OpenWait wait{};
  const py::gil_scoped_release unlocked{};
};

/// A train::ActiveRun with callbacks and hooks in Python. All of it is called with the GIL held.
class PythonRun {
 public:
  /// See _core.pyi for the arguments.
  PythonRun(const driver::RunPlan& given, const Function& function, const py::list& callbacks, const py::object& hooks,
            bool claims_signals, py::object agent, bool observed, const py::object& validations)
      : agent_(std::move(agent)), is_main_(claims_signals), run_(options(claims_signals, observed)) {
    if (observed) open_.emplace(run_.control());
    // A signal that came before belongs to Python; later ones belong to the run.
    handle_signals();
    driver::RunPlan plan = plan_with(given, function);
    for (const py::handle callback : callbacks) {
      callbacks_.push_back(callback_of(py::reinterpret_borrow<py::object>(callback)));
      plan.options.run.callbacks.push_back(callbacks_.back().get());
    }
    if (!hooks.is_none()) hooks_ = hooks_of(hooks);
    plan.wiring.hooks = hooks_.get();
    if (!validations.is_none()) validations_ = validations_of(validations);
    plan.wiring.validations = validations_.get();
    const WithoutGil unlocked;
    run_.prepare(std::move(plan));
  }
  explicit PythonRun(Result before) : run_(train::ActiveRun::Options{}) { run_.set_finished(std::move(before)); }

  void run() {
    // The interpreter must not end while another thread than the main one is in here.
    if (!is_main_ && !open_) open_.emplace(run_.control());
    if (open_) open_->set_thread();
    {
      const py::gil_scoped_release unlocked;
      run_.run();
    }
    // They may refer to this object.
    callbacks_.clear();
    hooks_.reset();
    validations_.reset();
    // The GIL is kept until the call has returned.
    open_.reset();
  }

  void give_up() { open_.reset(); }

  py::tuple wait(std::optional<double> timeout, bool claims_signals) {
    std::optional<sys::SignalWatch> claim;
    if (claims_signals && !run_.is_over()) {
      claim.emplace(Then::nothing);
      handle_signals();
    }
    if (!run_.is_over()) {
      const WithoutGil unlocked;
      run_.wait(timeout ? std::optional(Seconds(*timeout)) : std::nullopt, handle_signals);
    }
    const driver::RunOutcome& outcome = run_.wait(Seconds(0));
    return py::make_tuple(outcome.result, outcome.signal, to_python_bytes(outcome.values));
  }

  py::object next() {
    std::optional<Value> report;
    if (!run_.is_over()) {
      const WithoutGil unlocked;
      report = run_.next(handle_signals);
    } else {
      report = run_.next();
    }
    return report ? to_python(*report) : py::none();
  }

  train::ActiveRun& active() { return run_; }

 private:
  train::ActiveRun::Options options(bool claims_signals, bool observed) const {
    train::ActiveRun::Options made;
    made.then = claims_signals ? Then::nothing : Then::at_once;
    made.agent = agent_.is_none() ? nullptr : py::cast<train::AgentSlot*>(agent_);
    made.observed = observed;
    return made;
  }

  py::object agent_ = py::none();
  bool is_main_ = true;  ///< the main thread runs it
  std::vector<std::unique_ptr<Callback>> callbacks_;
  std::unique_ptr<driver::Hooks> hooks_;
  std::unique_ptr<driver::Validations> validations_;
  train::ActiveRun run_;
  std::optional<train::OpenRun> open_;
};

}  // namespace

void bind_run_handle(py::module_& module) {
  py::class_<PythonRun>(module, "Run")
      .def(py::init<const driver::RunPlan&, const Function&, const py::list&, const py::object&, bool, py::object, bool,
                    const py::object&>(),
           py::arg("plan"), py::arg("function"), py::arg("callbacks"), py::arg("hooks") = py::none(), py::kw_only(),
           py::arg("claims_signals"), py::arg("agent") = py::none(), py::arg("observed") = false,
           py::arg("validations") = py::none())
      .def_static("finished", [](const Result& result) { return std::make_unique<PythonRun>(result); })
      .def("run", &PythonRun::run)
      .def("give_up", &PythonRun::give_up)
      .def("wait", &PythonRun::wait, py::arg("timeout") = py::none(), py::arg("claims_signals") = false)
      .def("next", &PythonRun::next)
      .def(
          "stop", [](PythonRun& self, bool checkpoint) { self.active().stop(checkpoint); }, py::arg("checkpoint"))
      .def_property_readonly("dropped", [](PythonRun& self) { return self.active().dropped(); })
      .def_property_readonly("state", [](PythonRun& self) { return self.active().state(); })
      .def_property_readonly("metrics", [](PythonRun& self) { return to_python(self.active().metrics()); })
      .def_property_readonly("path", [](PythonRun& self) { return self.active().path().string(); });
  module.def("stop_runs", &train::stop_open_runs, py::call_guard<py::gil_scoped_release>());
}

}  // namespace lockstep::python
