#include <arrow/buffer.h>
#include <arrow/compute/expression.h>
#include <arrow/table.h>
#include <pybind11/stl.h>

#include <optional>

#include "base/json.h"
#include "bindings.h"
#include "data/status.h"
#include "data/stream.h"

namespace lockstep::python {
namespace {

using data::Dataset;

class Stream {
 public:
  Stream(std::shared_ptr<data::Stream> stream, bool is_borrowed)
      : threads_(std::move(stream)), is_borrowed_(is_borrowed) {}

  std::optional<Batch> next() {
    const auto stream = std::static_pointer_cast<data::Stream>(threads_.work());
    if (!stream) return std::nullopt;
    for (bool ready = false; !ready;) {
      {
        const py::gil_scoped_release released;
        ready = stream->wait(std::chrono::milliseconds(100));
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    const py::gil_scoped_release released;
    auto batch = stream->next();
    if (!batch) return std::nullopt;
    return Batch{std::move(batch), is_borrowed_};
  }

 private:
  Threads threads_;
  bool is_borrowed_;
};

std::unique_ptr<Stream> open_stream(const Dataset& dataset, std::int64_t batch_size, bool drop_last, int prefetch) {
  auto stream = watched([&] {
    auto made = std::make_shared<data::Stream>(dataset, data::StreamOptions{batch_size, drop_last, prefetch});
    made->start();
    return made;
  });
  return std::make_unique<Stream>(std::move(stream), dataset.is_borrowed());
}

Dataset filtered(const Dataset& dataset, const py::bytes& serialized) {
  const auto condition = data::value_of(arrow::compute::Deserialize(arrow::Buffer::FromString(std::string(serialized))),
                                        "the condition of a filter");
  return Dataset(data::filter(dataset.source(), condition));
}

Dataset united(const std::vector<Dataset>& datasets) {
  std::vector<data::SourcePointer> sources;
  for (const Dataset& each : datasets) sources.push_back(each.source());
  return Dataset(data::concatenate(std::move(sources)));
}

Dataset materialized(const Dataset& dataset) {
  Dataset made(data::whole(dataset.source(), [](const auto& table) { return table; },
                           {.description = "materialize: in memory", .keeps_schema = true, .keeps_blocks = true}));
  watched([&] { made.source()->prepare(); });
  return made;
}

}  // namespace

void bind_steps(py::module_& module, py::class_<Dataset>& dataset) {
  py::class_<Rows>(module, "Rows")
      .def("__arrow_c_stream__", &Rows::export_to, py::arg("requested_schema") = py::none())
      .def("arrays", &Rows::arrays, py::kw_only(), py::arg("writable"))
      .def_property_readonly("num_rows", [](const Rows& rows) { return rows.table->num_rows(); });
  py::class_<Stream>(module, "Stream").def("next", &Stream::next);
  module.def("stream", &open_stream);
  module.def("union", &united);

  const auto released = py::call_guard<py::gil_scoped_release>();
  dataset.def("index", [](const Dataset& self) {
    const Value index = self.source()->index();
    return index.is_null() ? std::string() : to_json(index);
  });
  dataset.def("rows", [](const Dataset& self) { return watched([&] { return self.rows_of_blocks(); }); })
      .def("set_rows",
           [](const Dataset& self, const std::vector<std::int64_t>& rows) { self.source()->set_rows_of_blocks(rows); })
      .def("blocks", [](const Dataset& self) { return watched([&] { return self.source()->blocks(); }); })
      .def(
          "is_counted", [](const Dataset& self) { return self.source()->is_counted(); }, released)
      .def(
          "knows_schema", [](const Dataset& self) { return self.source()->knows_schema(); }, released)
      .def("is_borrowed", &Dataset::is_borrowed)
      .def(
          "files", [](const Dataset& self) { return self.source()->files(); }, released)
      .def("stats",
           [](const Dataset& self) {
             std::vector<py::tuple> steps;
             for (const auto& each : data::stats_of(*self.source()))
               steps.push_back(py::make_tuple(each.step, each.blocks, each.rows, each.bytes,
                                              std::chrono::duration<double>(each.time).count()));
             return steps;
           })
      .def(
          "size_bytes", [](const Dataset& self) { return self.source()->size_bytes(); }, released)
      .def(
          "skipped",
          [](const Dataset& self) {
            const auto skipped = self.source()->skipped();
            return std::pair(skipped.count, skipped.places);
          },
          released)
      .def("prepare", [](const Dataset& self) { watched([&] { self.source()->prepare(); }); })
      .def("read_all",
           [](const Dataset& self, const std::string& step) {
             return Rows{watched([&] { return data::read_all(*self.source(), step); })};
           })
      .def("drop_columns", &Dataset::drop_columns, released)
      .def("rename_columns", &Dataset::rename_columns, released)
      .def(
          "slice",
          [](const Dataset& self, std::int64_t begin, std::int64_t end, std::string description) {
            return Dataset(data::slice(self.source(), begin, end, std::move(description)));
          },
          released)
      .def(
          "zip",
          [](const Dataset& self, const Dataset& other) { return Dataset(data::zip(self.source(), other.source())); },
          released)
      .def("shuffle_blocks",
           [](const Dataset& self, std::uint64_t seed) { return Dataset(data::shuffle_blocks(self.source(), seed)); })
      .def("shuffle_rows", [](const Dataset& self, std::uint64_t seed,
                              std::size_t blocks) { return Dataset(data::shuffle_rows(self.source(), seed, blocks)); })
      .def("filter", &filtered)
      .def("map",
           [](const Dataset& self, const py::object& function, std::string name, bool keeps_rows) {
             return Dataset(data::map(self.source(), block_function(function),
                                      {.name = std::move(name), .keeps_rows = keeps_rows}));
           })
      .def(
          "whole",
          [](const Dataset& self, const py::object& function, std::string description, bool keeps_rows,
             bool keeps_schema, std::size_t blocks) {
            return Dataset(data::whole(self.source(), table_function(function),
                                       {.description = std::move(description),
                                        .keeps_rows = keeps_rows,
                                        .keeps_schema = keeps_schema,
                                        .blocks = blocks}));
          },
          py::arg("function"), py::kw_only(), py::arg("description"), py::arg("keeps_rows") = false,
          py::arg("keeps_schema") = false, py::arg("blocks") = 0)
      .def("repartition",
           [](const Dataset& self, std::size_t blocks) {
             return Dataset(data::whole(self.source(), [](const auto& table) { return table; },
                                        {.description = "repartition: " + std::to_string(blocks) + " (in memory)",
                                         .keeps_rows = true,
                                         .keeps_schema = true,
                                         .blocks = blocks}));
           })
      .def("materialize", &materialized);
}

}  // namespace lockstep::python
