#include <lockstep/array.h>

#include "bindings.h"
#include "convert.h"
#include "metrics/autofill.h"
#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/tensorboard_sink.h"

namespace lockstep::python {

using metrics::ReportSink;

void bind_sinks(py::module_& module) {
  py::class_<ReportSink>(module, "ReportSink")
      .def_static("json",
                  [](const std::string& directory, const std::string& name) -> std::unique_ptr<ReportSink> {
                    return std::make_unique<metrics::JsonSink>(directory, sys::files(), name);
                  })
      .def_static("csv",
                  [](const std::string& directory) -> std::unique_ptr<ReportSink> {
                    return std::make_unique<metrics::CsvSink>(directory);
                  })
      .def_static("tensorboard",
                  [](const std::string& directory) -> std::unique_ptr<ReportSink> {
                    return std::make_unique<metrics::TensorBoardSink>(directory);
                  })
      .def("start", [](ReportSink& sink, const py::dict& config) { sink.start(to_value(config, "config")); })
      .def("write",
           [](ReportSink& sink, const py::dict& result, long step) { sink.write(to_value(result, "result"), step); })
      .def("flush", &ReportSink::flush, py::call_guard<py::gil_scoped_release>())
      .def("close", &ReportSink::close, py::call_guard<py::gil_scoped_release>());
  py::list autofilled;
  for (const std::string_view key : metrics::autofilled_keys()) autofilled.append(to_text(key));
  module.attr("AUTOFILLED_KEYS") = py::frozenset(autofilled);
  module.def("as_in_files",
             [](const py::object& value) { return to_python(with_summaries(to_value(value, "value"))); });
}

}  // namespace lockstep::python
