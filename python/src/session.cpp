#include <lockstep/session.h>
#include <pybind11/stl.h>

#include "base/json.h"
#include "bindings.h"
#include "checkpoint.h"
#include "convert.h"
#include "sys/node.h"
#include "sys/sockets.h"
#include "wire/messages.h"
#include "worker/native_stacks.h"
#include "worker/worker_session.h"
#include "worker/zygote.h"

namespace lockstep::python {
namespace {

using worker::WorkerSession;

/// Binds a field of Begin as Python shows it: texts are str, maps are dicts.
template <class Bound, class T>
void bind_field(Bound& bound, const char* name, T wire::Begin::*field) {
  bound.def_property_readonly(name, [field](const wire::Begin& self) { return to_python(Value(self.*field)); });
}

void bind_begin(py::module_& module) {
  py::class_<wire::Begin> bound(module, "Begin");
  bound.def(py::init<>());
  bind_field(bound, "attempt", &wire::Begin::attempt);
  bind_field(bound, "rank", &wire::Begin::rank);
  bind_field(bound, "world_size", &wire::Begin::world_size);
  bind_field(bound, "local_rank", &wire::Begin::local_rank);
  bind_field(bound, "local_world_size", &wire::Begin::local_world_size);
  bind_field(bound, "node_rank", &wire::Begin::node_rank);
  bind_field(bound, "experiment_name", &wire::Begin::experiment_name);
  bind_field(bound, "trial_name", &wire::Begin::trial_name);
  bind_field(bound, "trial_id", &wire::Begin::trial_id);
  bind_field(bound, "run_dir", &wire::Begin::run_dir);
  bind_field(bound, "env", &wire::Begin::env);
  bind_field(bound, "cwd", &wire::Begin::cwd);
  bind_field(bound, "python_path", &wire::Begin::python_path);
  bind_field(bound, "argv", &wire::Begin::argv);
  bind_field(bound, "keep", &wire::Begin::keep);
  bind_field(bound, "services", &wire::Begin::services);
}

/// Without metrics (None) it is only a checkpoint. `checkpoint` is True for one that this rank does not keep. Returns
/// whether the function must end here.
bool report(WorkerSession& session, const std::optional<py::dict>& metrics, const py::object& checkpoint) {
  std::optional<Value> values;
  if (metrics) values = to_value(*metrics, "metrics");
  if (py::isinstance<EncodedDict>(checkpoint)) {
    const auto& parts = py::cast<const EncodedDict&>(checkpoint);
    const store::DictParts view = parts.view();
    const py::gil_scoped_release unlocked;
    return session.deliver(values, view);
  }
  const bool is_unkept = checkpoint.ptr() == Py_True;
  std::optional<Checkpoint> handle;
  if (!is_unkept && !checkpoint.is_none()) handle = py::cast<Checkpoint>(checkpoint);
  const py::gil_scoped_release unlocked;
  return handle ? session.deliver(values, handle) : session.deliver_metrics(values, is_unkept);
}

}  // namespace

void bind_session(py::module_& module) {
  module.def("kill_leftovers", &worker::kill_leftovers);
  bind_begin(module);
  // The session lives until the process ends: a fork of the worker has none of its threads and must not try to join
  // them.
  py::class_<WorkerSession, std::unique_ptr<WorkerSession, py::nodelete>>(module, "WorkerSession")
      .def(py::init([](int fd) {
        const py::gil_scoped_release unlocked;
        return new WorkerSession(fd);
      }))
      .def_property_readonly("begin", &WorkerSession::begin)
      .def("node_address", &WorkerSession::node_address)
      .def("node_ip", &WorkerSession::node_ip)
      .def_property_readonly("keeps_checkpoints", &WorkerSession::keeps_checkpoints)
      .def("start", &WorkerSession::start, py::call_guard<py::gil_scoped_release>())
      .def("report", &report, py::arg("metrics"), py::arg("checkpoint"))
      .def("checkpoint", &WorkerSession::checkpoint, py::call_guard<py::gil_scoped_release>())
      .def("saved_position",
           [](WorkerSession& session, const std::string& dataset) -> std::optional<std::string> {
             const py::gil_scoped_release unlocked;
             const auto position = session.saved_position(dataset);
             return position ? std::optional(to_json(*position)) : std::nullopt;
           })
      .def("set_position",
           [](WorkerSession& session, const std::string& dataset, const std::string& position) {
             const py::gil_scoped_release unlocked;
             session.keep_position(dataset, [value = parse_json(position, "position")] { return value; });
           })
      .def("keep_file", [](WorkerSession& session, const std::string& name,
                           const py::bytes& contents) { session.keep_file(name, to_bytes(contents)); })
      .def("meet",
           [](WorkerSession& session, const py::bytes& value, double timeout) {
             Bytes bytes = to_bytes(value);
             {
               const py::gil_scoped_release unlocked;
               bytes = session.broadcast_from_rank_zero(std::move(bytes), std::chrono::duration<double>(timeout));
             }
             return to_python_bytes(bytes);
           })
      .def("serve_calls",
           [](WorkerSession& session, const py::function& answer) {
             const py::gil_scoped_release unlocked;
             session.serve_calls([&](const Bytes& payload) {
               const py::gil_scoped_acquire locked;
               return to_bytes(py::cast<py::bytes>(answer(to_python_bytes(payload))));
             });
           })
      .def("finish",
           [](WorkerSession& session, const py::bytes& value) {
             Bytes bytes = to_bytes(value);
             const py::gil_scoped_release unlocked;
             session.finish(std::move(bytes));
           })
      .def("wait_for_next",
           [](WorkerSession& session) -> py::object {
             std::optional<WorkerSession::Next> next;
             {
               const py::gil_scoped_release unlocked;
               next = session.wait_for_next();
             }
             if (!next) return py::none();
             return py::make_tuple(std::unique_ptr<WorkerSession, py::nodelete>(next->session.release()),
                                   to_python_bytes(next->payload));
           })
      .def(
          "fail",
          [](WorkerSession& session, const std::string& kind, std::string type, std::string message,
             std::string traceback) {
            Failure failure;
            failure.kind = failure_kind(kind);
            failure.type = std::move(type);
            failure.message = std::move(message);
            failure.traceback = std::move(traceback);
            const py::gil_scoped_release unlocked;
            session.fail(failure);
          },
          py::arg("kind"), py::arg("type"), py::arg("message"), py::arg("traceback"))
      .def("request_stop", &WorkerSession::request_stop, py::call_guard<py::gil_scoped_release>())
      .def("should_stop", &WorkerSession::should_stop, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("stopping", &WorkerSession::stopping)
      .def_property_readonly("should_checkpoint", &WorkerSession::should_checkpoint)
      .def_property_readonly("time_left", [](const WorkerSession& session) -> std::optional<double> {
        const auto left = session.time_left();
        return left ? std::optional(left->count()) : std::nullopt;
      });
  module.attr("LOOPBACK") = sys::kLoopback;
  module.def("node_ip", &sys::node_ip);
  module.def("plain_metrics", [](const py::dict& metrics) { return to_python(to_value(metrics, "metrics")); });
  module.def("install_native_stacks", &worker::install_native_stacks);
}

}  // namespace lockstep::python
