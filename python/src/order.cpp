// The order of samples and how ranks divide them, for the loaders of lockstep.torch.

#include "data/order.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "bindings.h"

namespace lockstep::python {
namespace {

using data::Deal;
using data::SampleOrder;

/// Seeds and epochs count modulo 2^64, so that negative ones are as good as others.
std::uint64_t to_bits(const py::object& number) {
  const auto bits = PyLong_AsUnsignedLongLongMask(number.ptr());
  if (PyErr_Occurred()) throw py::error_already_set();
  return bits;
}

std::string name_of(bool shuffle, const py::object& seed) {
  return SampleOrder::name(shuffle ? SampleOrder::Kind::shuffled : SampleOrder::Kind::sequential, to_bits(seed));
}

SampleOrder make_order(std::int64_t size, const py::object& seed, const py::object& epoch) {
  const auto seed_bits = to_bits(seed), epoch_bits = to_bits(epoch);
  const py::gil_scoped_release released;
  return {SampleOrder::Kind::shuffled, size, seed_bits, epoch_bits};
}

Deal make_deal(std::int64_t total, std::int64_t start, int rank, int world, std::int64_t batch_size, bool drop_last) {
  return {total, start, {rank, world, batch_size, data::Tail::pad, drop_last}};
}

py::tuple places_of(const Deal& deal) {
  const auto share = deal.share();
  const auto range = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&PyRange_Type));
  return py::make_tuple(range(share.first, share.first + share.count * share.step, share.step), share.extra);
}

py::list samples_of(const SampleOrder& order, const Deal& deal, std::int64_t first, std::int64_t count) {
  const auto share = deal.share();
  count = std::max<std::int64_t>(std::min(share.size() - first, count), 0);
  py::list samples(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n) {
    auto sample = py::int_(order(share.place(first + n)));
    PyList_SET_ITEM(samples.ptr(), n, sample.release().ptr());
  }
  return samples;
}

}  // namespace

void bind_order(py::module_& module) {
  module.def(
      "generator_seed",
      [](const py::object& seed, const py::object& epoch, const std::optional<py::object>& part) {
        return data::generator_seed(to_bits(seed), to_bits(epoch), part ? std::optional(to_bits(*part)) : std::nullopt);
      },
      py::arg("seed"), py::arg("epoch"), py::arg("part") = py::none());
  py::class_<Deal>(module, "Deal")
      .def(py::init(&make_deal), py::arg("total"), py::arg("start"), py::arg("rank"), py::arg("world"),
           py::arg("batch_size"), py::arg("drop_last"))
      .def_property_readonly("total", &Deal::total)
      .def_property_readonly("batches", &Deal::batches)
      .def_property_readonly("places", &places_of)
      .def("__len__", [](const Deal& deal) { return deal.share().size(); })
      .def("position_after", &Deal::position_after)
      .def("__deepcopy__", [](const Deal& deal, const py::dict& /* what is copied already */) { return deal; });
  py::class_<SampleOrder>(module, "SampleOrder")
      .def(py::init(&make_order), py::arg("size"), py::arg("seed"), py::arg("epoch"))
      .def_static("name", &name_of)
      .def("__len__", &SampleOrder::size)
      .def("samples", &samples_of);
}

}  // namespace lockstep::python
