#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.h"
#include "convert.h"
#include "tune/experiment_chart.h"

namespace lockstep::python {
namespace {

using tune::Chart;
using tune::Experiment;
using tune::PlotOptions;

/// Arguments of a plot, and the experiment that it shows.
struct PlotCall {
  std::filesystem::path path;
  std::string mode;  ///< of options.metric; empty: as the experiment says
  PlotOptions options;

  Chart chart() const {
    const auto experiment = Experiment::open(path, {.read_only = true});
    Chart chart = tune::read_chart(*experiment, tune::further_metrics(*experiment, options));
    if (!mode.empty() && !chart.metrics.empty())
      chart.metrics[tune::chosen_metric(chart, options.metric)].maximize = mode == "max";
    return chart;
  }
};

PlotCall plot_call(const std::filesystem::path& path, const std::string& kind, const std::string& metric,
                   const std::string& mode, const std::string& x, const std::string& y, std::uint64_t seed) {
  return {path, mode, {.kind = kind, .metric = metric, .x = x, .y = y, .seed = seed}};
}

}  // namespace

void bind_tune_plots(py::module_& module) {
  py::module_ tune = module.attr("tune");
  tune.def(
      "plot_html",
      [](const std::filesystem::path& path, const std::string& kind, const std::string& metric, const std::string& mode,
         const std::string& x, const std::string& y, std::uint64_t seed) {
        const PlotCall call = plot_call(path, kind, metric, mode, x, y, seed);
        return tune::plot_html(call.chart(), call.options);
      },
      py::arg("path"), py::arg("kind"), py::arg("metric") = "", py::arg("mode") = "", py::arg("x") = "",
      py::arg("y") = "", py::arg("seed") = 0, py::call_guard<py::gil_scoped_release>());
  tune.def(
      "plot_value",
      [](const std::filesystem::path& path, const std::string& kind, const std::string& metric, const std::string& mode,
         const std::string& x, const std::string& y, std::uint64_t seed) {
        const PlotCall call = plot_call(path, kind, metric, mode, x, y, seed);
        Value value;
        {
          const py::gil_scoped_release unlocked;
          value = tune::plot_value(call.chart(), call.options);
        }
        return to_python(value);
      },
      py::arg("path"), py::arg("kind"), py::arg("metric") = "", py::arg("mode") = "", py::arg("x") = "",
      py::arg("y") = "", py::arg("seed") = 0);
}

}  // namespace lockstep::python
