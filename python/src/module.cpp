#include "base/version.h"
#include "bindings.h"

PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = lockstep::kVersion;
  lockstep::python::bind_errors(module);
  lockstep::python::bind_checkpoint(module);
  lockstep::python::bind_config(module);
  lockstep::python::bind_early_stopping(module);
  lockstep::python::bind_order(module);
  lockstep::python::bind_report_columns(module);
  lockstep::python::bind_run_view(module);
  lockstep::python::bind_session(module);
  lockstep::python::bind_run_plan(module);
  lockstep::python::bind_trainer(module);
  lockstep::python::bind_run_handle(module);
  lockstep::python::bind_sinks(module);
  lockstep::python::bind_store(module);
  lockstep::python::bind_tune(module);
  lockstep::python::bind_tune_plots(module);
  lockstep::python::bind_trial_record(module);
}
