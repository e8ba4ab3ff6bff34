#include <lockstep/early_stopping.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "convert.h"

namespace lockstep::python {

void bind_early_stopping(py::module_& module) {
  py::class_<EarlyStopping>(module, "EarlyStopping")
      .def(py::init([](std::string metric, int patience, std::string mode, double min_delta) {
        return EarlyStopping({std::move(metric), patience, std::move(mode), min_delta});
      }))
      .def("reset", &EarlyStopping::reset)
      .def("should_stop",
           [](EarlyStopping& rule, const py::dict& metrics) { return rule.should_stop(to_value(metrics, "metrics")); })
      .def_property_readonly("best", &EarlyStopping::best);
}

}  // namespace lockstep::python
