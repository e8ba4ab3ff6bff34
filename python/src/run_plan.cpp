#include "run_plan.h"

#include <pybind11/stl.h>

#include "bindings.h"
#include "convert.h"
#include "horovod/service_for.h"
#include "store/run_settings.h"

namespace lockstep::python {
namespace {

/// The strings in sys.argv.
std::vector<std::string> arguments() {
  std::vector<std::string> given;
  for (const py::handle each : py::getattr(py::module_::import("sys"), "argv", py::list()))
    given.push_back(py::cast<std::string>(py::str(each).attr("encode")("utf-8", "replace")));
  return given;
}

}  // namespace

driver::RunPlan plan_with(driver::RunPlan plan, const Function& function) {
  plan.function.payload = to_bytes(function.payload);
  plan.function.save_payload = function.kept && function.kept->is(function.payload);
  if (function.kept && !plan.function.save_payload) plan.function.saved = to_bytes(*function.kept);
  plan.function.sha256 = function.sha256;
  if (plan.backend.needs) plan.backend.service = horovod::service_for(*plan.backend.needs);
  return plan;
}

void bind_run_plan(py::module_& module) {
  using store::BackendNeeds;
  py::class_<BackendNeeds>(module, "BackendNeeds")
      .def(py::init<>())
      .def_readwrite("environment", &BackendNeeds::environment)
      .def_readwrite("preload", &BackendNeeds::preload)
      .def_readwrite("backend_cls", &BackendNeeds::backend_cls)
      .def_property("services", nullptr,
                    [](BackendNeeds& self, const std::map<std::string, py::object>& given) {
                      self.services.clear();
                      for (const auto& [name, options] : given)
                        self.services[name] = to_value(options, "run_options()[\"" + name + "\"]");
                    })
      .def_readwrite("replace_workers", &BackendNeeds::replace_workers);
  py::class_<store::RunSettings>(module, "RunSettings")
      .def_readonly("scaling", &store::RunSettings::scaling)
      .def_readonly("run", &store::RunSettings::run)
      .def_readonly("backend", &store::RunSettings::backend);
  py::class_<Function>(module, "Function")
      .def(py::init([](py::bytes payload, std::optional<py::bytes> kept, std::string sha256) {
             return Function{std::move(payload), std::move(kept), std::move(sha256)};
           }),
           py::arg("payload"), py::arg("kept") = py::none(), py::arg("sha256") = "");

  py::class_<driver::ProgramSpec>(module, "Program")
      .def(py::init([](std::vector<std::string> command, std::map<std::string, std::string> env, std::string cwd,
                       std::vector<std::string> python_path) {
             return driver::ProgramSpec{
                 {std::move(command), std::move(env), std::move(cwd), {}}, std::move(python_path), arguments()};
           }),
           py::arg("command"), py::arg("env"), py::arg("cwd"), py::arg("python_path"));

  using Plan = driver::RunPlan;
  py::class_<Plan>(module, "RunPlan")
      .def(py::init<>())
      .def_readwrite("trainer", &Plan::trainer)
      .def_readwrite("restore", &Plan::restore)
      .def_readwrite("program", &Plan::program)
      .def_property("scaling", nullptr, [](Plan& self, const ScalingConfig& given) { self.options.scaling = given; })
      .def_property("run", nullptr, [](Plan& self, const RunConfig& given) { self.options.run = given; })
      .def_property("resume_from", nullptr,
                    [](Plan& self, std::optional<Checkpoint> given) { self.options.resume_from = std::move(given); })
      .def_property("config", nullptr,
                    [](Plan& self, py::handle given) { self.options.config = to_value(given, "train_loop_config"); })
      .def_property("metadata", nullptr,
                    [](Plan& self, py::handle given) { self.metadata = to_value(given, "metadata"); })
      .def_property(
          "backend", [](const Plan& self) { return self.backend.needs; },
          [](Plan& self, std::optional<BackendNeeds> given) { self.backend.needs = std::move(given); })
      .def_property("only_deaths", nullptr, [](Plan& self, bool given) { self.group.only_deaths = given; })
      .def_property("keep_workers", nullptr, [](Plan& self, bool given) { self.group.keep_workers = given; })
      .def_property("record", nullptr, [](Plan& self, bool given) { self.group.record = given; });
}

}  // namespace lockstep::python
