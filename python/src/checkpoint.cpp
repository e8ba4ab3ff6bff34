#include "checkpoint.h"

#include <pybind11/stl.h>

#include "bindings.h"
#include "convert.h"

namespace lockstep::python {

EncodedDict::EncodedDict(std::string text, const py::sequence& arrays, const py::object& pickled)
    : data(std::move(text)) {
  for (const py::handle item : arrays) {
    const auto tuple = py::reinterpret_borrow<py::tuple>(item);
    buffers.push_back(py::cast<py::buffer>(tuple[3]).request());
    const py::buffer_info& buffer = buffers.back();
    Tensor tensor;
    tensor.name = py::cast<std::string>(tuple[0]);
    tensor.dtype = py::cast<std::string>(tuple[1]);
    tensor.shape = py::cast<std::vector<std::int64_t>>(tuple[2]);
    tensor.bytes = {static_cast<const std::byte*>(buffer.ptr), static_cast<std::size_t>(buffer.size * buffer.itemsize)};
    tensors.push_back(std::move(tensor));
  }
  if (!pickled.is_none()) objects = py::cast<py::bytes>(pickled);
}

store::DictParts EncodedDict::view() const {
  store::DictParts parts;
  parts.data = data;
  parts.tensors = tensors;
  if (objects) {
    const std::string_view bytes = *objects;
    parts.objects = std::as_bytes(std::span(bytes));
  }
  return parts;
}

namespace {

py::list tensors_of(const Checkpoint& checkpoint) {
  py::list list;
  for (const Tensor& tensor : checkpoint.tensors()) {
    const py::object view = py::cast(TensorView{tensor.bytes, checkpoint});
    list.append(py::make_tuple(tensor.name, tensor.dtype, py::tuple(py::cast(tensor.shape)), py::memoryview(view)));
  }
  return list;
}

}  // namespace

void bind_checkpoint(py::module_& module) {
  py::class_<TensorView>(module, "TensorView", py::buffer_protocol()).def_buffer([](TensorView& view) {
    return py::buffer_info(const_cast<std::byte*>(view.bytes.data()), 1, py::format_descriptor<std::uint8_t>::format(),
                           1, {static_cast<py::ssize_t>(view.bytes.size())}, {py::ssize_t{1}}, /*readonly=*/true);
  });
  py::class_<EncodedDict>(module, "EncodedDict")
      .def(py::init<std::string, py::sequence, py::object>(), py::arg("data"), py::arg("tensors"), py::arg("objects"));
  py::class_<Checkpoint>(module, "Checkpoint")
      .def_static("from_directory", [](const std::string& path) { return Checkpoint::from_directory(path); })
      .def_static("from_bytes",
                  [](const py::bytes& data) {
                    const std::string_view view = data;
                    return Checkpoint::from_bytes({reinterpret_cast<const std::uint8_t*>(view.data()), view.size()});
                  })
      .def_static("from_parts",
                  [](const EncodedDict& parts) { return Checkpoint::from_files(store::to_files(parts.view())); })
      .def_property_readonly("path",
                             [](const Checkpoint& self) -> std::optional<std::string> {
                               const auto path = self.path();
                               return path ? std::optional(path->string()) : std::nullopt;
                             })
      .def("files",
           [](const Checkpoint& self) {
             py::list names;
             for (const std::string& name : self.files()) names.append(to_text(name));
             return names;
           })
      .def("read", [](const Checkpoint& self, const std::string& file) { return to_python_bytes(self.read(file)); })
      .def("tensors", &tensors_of)
      .def("metadata",
           [](const Checkpoint& self) -> py::object {
             const auto metadata = self.metadata();
             return metadata ? to_python(*metadata) : py::none();
           })
      .def("verify", &Checkpoint::verify, py::call_guard<py::gil_scoped_release>())
      .def("to_bytes", [](const Checkpoint& self) { return to_python_bytes(self.to_bytes()); })
      .def("to_directory", [](const Checkpoint& self, const std::string& path) {
        const py::gil_scoped_release unlocked;
        self.to_directory(path);
      });
}

}  // namespace lockstep::python
