#pragma once

#include <pybind11/pybind11.h>

namespace lockstep::python {

namespace py = pybind11;

void bind_errors(py::module_& module);
void bind_checkpoint(py::module_& module);
void bind_config(py::module_& module);
void bind_early_stopping(py::module_& module);
void bind_order(py::module_& module);
void bind_report_columns(py::module_& module);
void bind_run_view(py::module_& module);
void bind_session(py::module_& module);
void bind_run_plan(py::module_& module);
void bind_run_handle(py::module_& module);
void bind_trainer(py::module_& module);
void bind_sinks(py::module_& module);
void bind_store(py::module_& module);
void bind_tune(py::module_& module);
void bind_tune_plots(py::module_& module);
void bind_trial_record(py::module_& module);

}  // namespace lockstep::python
