#include "store/run_view.h"

#include <pybind11/stl.h>

#include "base/json.h"
#include "bindings.h"
#include "convert.h"

namespace lockstep::python {
namespace {

using store::OddFields;
using store::RunView;

}  // namespace

void bind_run_view(py::module_& module) {
  py::class_<RunView>(module, "RunView")
      .def_static("read", [](const std::string& path) { return RunView::read(path); })
      .def_static("read_leniently", [](const std::string& path) { return RunView::read(path, OddFields::ignore); })
      .def_property_readonly("state", [](const RunView& self) { return to_text(self.state()); })
      .def_property_readonly("created", [](const RunView& self) { return self.record.created; });

  module.def("number_at", [](const py::dict& metrics, const std::string& key) {
    return number_at(to_value(metrics, "metrics"), key);
  });
}

}  // namespace lockstep::python
