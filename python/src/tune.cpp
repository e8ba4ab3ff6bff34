#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.h"
#include "convert.h"
#include "tune/experiment.h"
#include "tune/policy_files.h"
#include "tune/ranking.h"
#include "tune/stored_result.h"

namespace lockstep::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;
using tune::Decision;
using tune::Experiment;
using tune::ExperimentSettings;
using tune::Exploit;
using tune::Point;
using tune::PointSearcher;
using tune::Scheduler;
using tune::TrialNumber;

/// A searcher written in Python.
class PythonSearcher : public PointSearcher {
 public:
  Asked ask(TrialNumber trial, const Point& fixed) override {
    PYBIND11_OVERRIDE_PURE(Asked, PointSearcher, ask, trial, fixed);
  }
  void tell(TrialNumber trial, const std::vector<double>& values) override {
    PYBIND11_OVERRIDE_PURE(void, PointSearcher, tell, trial, values);
  }
  void observe(TrialNumber trial, double budget, double value) override {
    PYBIND11_OVERRIDE(void, PointSearcher, observe, trial, budget, value);
  }
};

/// A scheduler written in Python.
class PythonScheduler : public Scheduler {
 public:
  bool may_stop() const override { PYBIND11_OVERRIDE(bool, Scheduler, may_stop); }
  Value complete_config(TrialNumber trial, Value config) const override {
    const py::gil_scoped_acquire locked;
    const py::function hook = py::get_override(static_cast<const Scheduler*>(this), "complete_config");
    return hook ? to_value(hook(trial, to_python(config)), "config") : config;
  }
  Value replay_log() const override {
    const py::gil_scoped_acquire locked;
    const py::function hook = py::get_override(static_cast<const Scheduler*>(this), "replay_log");
    return hook ? to_value(hook(), "replay_log") : Value::array();
  }
  void on_added(TrialNumber trial, const Value& config) override {
    const py::gil_scoped_acquire locked;
    if (const py::function hook = py::get_override(static_cast<const Scheduler*>(this), "on_added"))
      hook(trial, to_python(config));
  }
  Decision on_result(TrialNumber trial, double time, double value, bool has_checkpoint) override {
    PYBIND11_OVERRIDE_PURE(Decision, Scheduler, on_result, trial, time, value, has_checkpoint);
  }
  void on_ended(TrialNumber trial, bool failed) override {
    PYBIND11_OVERRIDE(void, Scheduler, on_ended, trial, failed);
  }
  void more_to_come(bool more) override { PYBIND11_OVERRIDE(void, Scheduler, more_to_come, more); }
  std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                    const std::vector<TrialNumber>& paused) override {
    PYBIND11_OVERRIDE(std::optional<TrialNumber>, Scheduler, choose, fresh, paused);
  }
  std::vector<TrialNumber> take_dropped() override {
    PYBIND11_OVERRIDE(std::vector<TrialNumber>, Scheduler, take_dropped);
  }
  std::optional<Exploit> take_exploit(TrialNumber trial) override {
    PYBIND11_OVERRIDE(std::optional<Exploit>, Scheduler, take_exploit, trial);
  }
  std::vector<TrialNumber> donors() const override { PYBIND11_OVERRIDE(std::vector<TrialNumber>, Scheduler, donors); }
};

/// A Value member as a Python property.
template <class Class, class Owner>
void value_property(Class& bound, const char* name, Value Owner::*member) {
  bound.def_property(
      name, [member](const Owner& owner) { return to_python(owner.*member); },
      [member, name](Owner& owner, const py::object& value) { owner.*member = to_value(value, name); });
}

void bind_searchers(py::module_& module) {
  py::class_<PointSearcher, PythonSearcher, std::shared_ptr<PointSearcher>> searcher(module, "Searcher");
  py::class_<PointSearcher::Asked> asked(searcher, "Asked");
  py::enum_<PointSearcher::Asked::Kind>(asked, "Kind")
      .value("point", PointSearcher::Asked::Kind::point)
      .value("wait", PointSearcher::Asked::Kind::wait)
      .value("exhausted", PointSearcher::Asked::Kind::exhausted);
  asked
      .def(py::init([](PointSearcher::Asked::Kind kind, Point point) {
             return PointSearcher::Asked{kind, std::move(point)};
           }),
           py::arg("kind") = PointSearcher::Asked::Kind::point, py::arg("point") = Point{})
      .def_readwrite("kind", &PointSearcher::Asked::kind)
      .def_readwrite("point", &PointSearcher::Asked::point);
  searcher.def(py::init<>())
      .def("ask", &PointSearcher::ask, py::arg("trial"), py::arg("fixed"), Unlocked())
      .def("tell", &PointSearcher::tell, py::arg("trial"), py::arg("values"), Unlocked())
      .def("observe", &PointSearcher::observe, py::arg("trial"), py::arg("budget"), py::arg("value"), Unlocked());
  module.def(
      "make_searcher",
      [](const py::dict& description, const tune::Space& space, std::uint64_t seed, int objectives) {
        return std::shared_ptr<PointSearcher>(
            tune::make_searcher(to_value(description, "description"), space, seed, objectives));
      },
      py::arg("description"), py::arg("space"), py::arg("seed") = 0, py::arg("objectives") = 1);
}

void bind_space(py::module_& module) {
  using tune::Space;
  py::class_<Space>(module, "Space")
      .def(py::init([](const py::dict& space) { return Space::parse(to_value(space, "param_space")); }),
           py::arg("param_space"))
      .def_property_readonly("names",
                             [](const Space& space) {
                               std::vector<std::string> names;
                               for (const auto& dimension : space.dimensions()) names.push_back(dimension.name);
                               return names;
                             })
      .def_property_readonly("dimensions",
                             [](const Space& space) {
                               py::list list;
                               for (const auto& each : space.dimensions()) {
                                 static constexpr const char* kKinds[] = {"real", "integer", "category", "normal"};
                                 py::dict item;
                                 item["name"] = each.name;
                                 item["kind"] = kKinds[static_cast<int>(each.domain.kind)];
                                 item["lower"] = each.domain.lower;
                                 item["upper"] = each.domain.upper;
                                 item["log"] = each.domain.log;
                                 item["quantum"] = each.domain.quantum;
                                 item["mean"] = each.domain.mean;
                                 item["sd"] = each.domain.sd;
                                 item["choices"] = each.domain.choices;
                                 item["grid"] = each.grid;
                                 item["parent"] = each.parent;
                                 item["parent_value"] = each.parent_value;
                                 list.append(item);
                               }
                               return list;
                             })
      .def("grid_size", &Space::grid_size)
      .def("grid_point", &Space::grid_point, py::arg("index"))
      .def("is_active", &Space::is_active, py::arg("point"), py::arg("dimension"))
      .def("config", [](const Space& space, const Point& point) { return to_python(space.config(point)); })
      .def("point", [](const Space& space, const py::dict& config) { return space.point(to_value(config, "config")); });
}

void bind_schedulers(py::module_& module) {
  py::class_<Decision> decision(module, "Decision");
  py::enum_<Decision::Kind>(decision, "Kind")
      .value("go_on", Decision::Kind::go_on)
      .value("stop", Decision::Kind::stop)
      .value("pause", Decision::Kind::pause);
  decision
      .def(py::init([](Decision::Kind kind, std::string why) {
             return Decision{kind, std::move(why)};
           }),
           py::arg("kind") = Decision::Kind::go_on, py::arg("why") = "")
      .def_readwrite("kind", &Decision::kind)
      .def_readwrite("why", &Decision::why);
  py::class_<Exploit> exploit(module, "Exploit");
  exploit
      .def(py::init([](TrialNumber donor, const py::object& config) {
             return Exploit{donor, to_value(config, "config")};
           }),
           py::arg("donor"), py::arg("config"))
      .def_readwrite("donor", &Exploit::donor);
  value_property(exploit, "config", &Exploit::config);
  py::class_<Scheduler, PythonScheduler, std::shared_ptr<Scheduler>>(module, "Scheduler")
      .def(py::init<>())
      .def("may_stop", &Scheduler::may_stop)
      .def("complete_config",
           [](const Scheduler& scheduler, TrialNumber trial, const py::object& config) {
             return to_python(scheduler.complete_config(trial, to_value(config, "config")));
           })
      .def("replay_log", [](const Scheduler& scheduler) { return to_python(scheduler.replay_log()); })
      .def("on_added", [](Scheduler& scheduler, TrialNumber trial,
                          const py::object& config) { scheduler.on_added(trial, to_value(config, "config")); })
      .def("on_result", &Scheduler::on_result, py::arg("trial"), py::arg("time"), py::arg("value"),
           py::arg("has_checkpoint") = false, Unlocked())
      .def("on_ended", &Scheduler::on_ended, py::arg("trial"), py::arg("failed") = false, Unlocked())
      .def("more_to_come", &Scheduler::more_to_come, py::arg("more"), Unlocked())
      .def("choose", &Scheduler::choose, py::arg("fresh"), py::arg("paused"), Unlocked())
      .def("take_dropped", &Scheduler::take_dropped, Unlocked())
      .def("take_exploit", &Scheduler::take_exploit, py::arg("trial"), Unlocked())
      .def("donors", &Scheduler::donors, Unlocked());
  module.def(
      "make_scheduler",
      [](const py::dict& description, std::uint64_t seed) {
        return std::shared_ptr<Scheduler>(tune::make_scheduler(to_value(description, "description"), seed));
      },
      py::arg("description"), py::arg("seed") = 0);
  module.def(
      "read_policy",
      [](const std::string& file) {
        const tune::Policy policy = tune::read_policy(file);
        return py::make_tuple(to_python(policy.config), to_python(policy.changes));
      },
      py::arg("file"));
}

void bind_records(py::module_& module) {
  py::class_<ExperimentSettings> settings(module, "ExperimentSettings");
  settings.def(py::init<>())
      .def_readwrite("name", &ExperimentSettings::name)
      .def_readwrite("num_samples", &ExperimentSettings::num_samples)
      .def_readwrite("metrics", &ExperimentSettings::metrics)
      .def_readwrite("modes", &ExperimentSettings::modes)
      .def_readwrite("seed", &ExperimentSettings::seed)
      .def_readwrite("time_attribute", &ExperimentSettings::time_attribute)
      .def_readwrite("time_budget", &ExperimentSettings::time_budget)
      .def_readwrite("max_failures", &ExperimentSettings::max_failures)
      .def_readwrite("fail_fast", &ExperimentSettings::fail_fast);
  value_property(settings, "param_space", &ExperimentSettings::param_space);
  value_property(settings, "searcher", &ExperimentSettings::searcher);
  value_property(settings, "scheduler", &ExperimentSettings::scheduler);
  value_property(settings, "points_to_evaluate", &ExperimentSettings::points_to_evaluate);
  value_property(settings, "stop", &ExperimentSettings::stop);
  value_property(settings, "extra", &ExperimentSettings::extra);

  py::enum_<tune::TrialState>(module, "TrialState")
      .value("pending", tune::TrialState::pending)
      .value("running", tune::TrialState::running)
      .value("paused", tune::TrialState::paused)
      .value("terminated", tune::TrialState::terminated)
      .value("error", tune::TrialState::error);
  py::class_<tune::Trial> trial(module, "Trial");
  trial.def_readonly("number", &tune::Trial::number)
      .def_readonly("id", &tune::Trial::id)
      .def_readonly("name", &tune::Trial::name)
      .def_readonly("state", &tune::Trial::state)
      .def_readonly("iterations", &tune::Trial::iterations)
      .def_readonly("failures", &tune::Trial::failures)
      .def_readonly("error", &tune::Trial::error)
      .def_readonly("checkpoint", &tune::Trial::checkpoint)
      .def_readonly("started", &tune::Trial::started)
      .def_readonly("ended", &tune::Trial::ended);
  value_property(trial, "config", &tune::Trial::config);
  value_property(trial, "last_result", &tune::Trial::last_result);
  py::class_<tune::Start> start(module, "Start");
  start.def_readonly("trial", &tune::Start::trial)
      .def_readonly("checkpoint", &tune::Start::checkpoint)
      .def_readonly("attempt", &tune::Start::attempt)
      .def_readonly("iterations", &tune::Start::iterations)
      .def_readonly("id", &tune::Start::id)
      .def_readonly("name", &tune::Start::name);
  value_property(start, "config", &tune::Start::config);
}

void bind_experiment(py::module_& module) {
  module.def("keys_not_stored", [] {
    py::list keys;
    for (const std::string_view key : tune::keys_not_stored()) keys.append(py::str(key.data(), key.size()));
    return keys;
  });
  py::class_<Experiment>(module, "Experiment")
      .def_static("create", &Experiment::create, py::arg("directory"), py::arg("settings"), Unlocked())
      .def_static(
          "open",
          [](const std::filesystem::path& directory, bool resume_errored, bool restart_errored, bool read_only) {
            return Experiment::open(directory, {resume_errored, restart_errored, read_only});
          },
          py::arg("directory"), py::arg("resume_errored") = false, py::arg("restart_errored") = false,
          py::arg("read_only") = false, Unlocked())
      .def("use", py::overload_cast<std::shared_ptr<PointSearcher>>(&Experiment::use), py::arg("searcher"),
           py::keep_alive<1, 2>(), Unlocked())
      .def("use", py::overload_cast<std::shared_ptr<Scheduler>>(&Experiment::use), py::arg("scheduler"),
           py::keep_alive<1, 2>(), Unlocked())
      .def("next", &Experiment::next, Unlocked())
      .def("set_name", &Experiment::set_name, py::arg("trial"), py::arg("name"), Unlocked())
      .def(
          "on_report",
          [](Experiment& experiment, TrialNumber trial, const py::dict& metrics, const std::string& checkpoint,
             bool last, const py::frozenset& unstored) {
            Value value = Value::object();
            for (const auto& [key, each] : metrics) {
              if (unstored.contains(key)) continue;
              const auto name = py::cast<std::string>(key);
              value[name] = to_value(each, name);
            }
            const py::gil_scoped_release unlocked;
            return experiment.on_report(trial, value, checkpoint, last);
          },
          py::arg("trial"), py::arg("metrics"), py::arg("checkpoint") = "", py::arg("last") = false,
          py::arg("unstored") = py::frozenset(py::set()))
      .def("on_checkpoint", &Experiment::on_checkpoint, py::arg("trial"), py::arg("checkpoint"), py::arg("iteration"),
           Unlocked())
      .def("on_ended", &Experiment::on_ended, py::arg("trial"), py::arg("error") = "", Unlocked())
      .def("is_done", &Experiment::is_done)
      .def("stop", &Experiment::stop, Unlocked())
      .def("sync", &Experiment::sync, Unlocked())
      .def("settings", &Experiment::settings, py::return_value_policy::copy)
      .def("size", &Experiment::size)
      .def("count", &Experiment::count, py::arg("state"))
      .def("in_state", &Experiment::in_state, py::arg("state"))
      .def("donors", &Experiment::donors, Unlocked())
      .def("checkpoints", &Experiment::checkpoints, Unlocked())
      .def("policy_files", &tune::policy_files, Unlocked())
      .def("replay_log", [](const Experiment& experiment) { return to_python(experiment.replay_log()); })
      .def("trial", &Experiment::trial, py::arg("number"), Unlocked())
      .def(
          "results",
          [](const Experiment& experiment, TrialNumber number) {
            std::vector<Value> results;
            {
              const py::gil_scoped_release unlocked;
              results = experiment.results(number);
            }
            py::list list;
            for (const Value& each : results) list.append(to_python(each));
            return list;
          },
          py::arg("number"))
      .def("best", &Experiment::best, py::arg("metric"), py::arg("mode"), py::arg("scope") = "last",
           py::arg("finite") = false, Unlocked())
      .def("pareto_front", &Experiment::pareto_front, py::arg("metrics"), py::arg("modes"), Unlocked());
  module.def("pareto_front", &tune::pareto_front, py::arg("points"));
}

}  // namespace

void bind_tune(py::module_& module) {
  py::module_ tune = module.def_submodule("tune");
  bind_space(tune);
  bind_searchers(tune);
  bind_schedulers(tune);
  bind_records(tune);
  bind_experiment(tune);
}

}  // namespace lockstep::python
