#pragma once

#include <lockstep/callback.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "driver/hooks.h"
#include "driver/validations.h"

namespace lockstep::python {

namespace py = pybind11;

/// Calls the hooks of a lockstep.callbacks.CallbackAdapter. Here and below: any thread may call the hooks, without the
/// GIL; make and destroy it with the GIL.
std::unique_ptr<Callback> callback_of(py::object object);

/// Calls the hooks of a lockstep._hooks.BackendHooks.
std::unique_ptr<driver::Hooks> hooks_of(py::object object);

/// Calls a lockstep._validation.Validator.
std::unique_ptr<driver::Validations> validations_of(py::object object);

}  // namespace lockstep::python
