#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "driver/run_plan.h"

namespace lockstep::python {

namespace py = pybind11;

/// The function for the workers, and what the run directory keeps for restore().
struct Function {
  py::bytes payload;
  std::optional<py::bytes> kept;  ///< often the payload itself; then there is no second copy
  std::string sha256;             ///< of what is kept
};

/// The plan with its function and its backend's service, which belongs to one run.
driver::RunPlan plan_with(driver::RunPlan plan, const Function& function);

}  // namespace lockstep::python
