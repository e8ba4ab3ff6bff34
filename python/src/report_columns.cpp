#include "metrics/report_columns.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <bit>
#include <limits>
#include <memory>
#include <utility>

#include "bindings.h"
#include "convert.h"

namespace lockstep::python {
namespace {

using metrics::ReportColumns;
using Column = ReportColumns::Column;
using Kind = ReportColumns::Kind;

/// An array that owns the memory of `values`.
template <class As, class Stored>
py::object to_array(std::vector<Stored> values) {
  static_assert(sizeof(As) == sizeof(Stored));
  auto owned = std::make_unique<std::vector<Stored>>(std::move(values));
  auto* const raw = owned.get();
  const py::capsule owner(owned.release(), [](void* memory) { delete static_cast<std::vector<Stored>*>(memory); });
  return py::array(py::dtype::of<As>(), {raw->size()}, {sizeof(As)}, raw->data(), owner);
}

/// Integers become numbers too, and missing ones NaN.
std::vector<std::uint64_t> as_numbers(Column& column) {
  for (std::size_t i = 0; i < column.cells.size(); ++i) {
    const Kind kind = column.kind_of(i);
    if (kind == Kind::number) continue;
    const double number = kind == Kind::integer ? static_cast<double>(static_cast<std::int64_t>(column.cells[i]))
                                                : std::numeric_limits<double>::quiet_NaN();
    column.cells[i] = std::bit_cast<std::uint64_t>(number);
  }
  return std::move(column.cells);
}

/// Equal strings are one object.
class Objects {
 public:
  explicit Objects(const ReportColumns& reports) : reports_(reports), texts_(reports.texts().size()) {}

  py::object of(Kind kind, std::uint64_t cell) {
    switch (kind) {
      case Kind::missing:
        return nan_;
      case Kind::null:
        break;
      case Kind::boolean:
        return py::bool_(cell != 0);
      case Kind::integer:
        return py::int_(static_cast<std::int64_t>(cell));
      case Kind::number:
        return py::float_(std::bit_cast<double>(cell));
      case Kind::text: {
        py::object& text = texts_[cell];
        if (!text) text = text_of(reports_.texts()[cell]);
        return text;
      }
      case Kind::json:
        return loads_(to_text(reports_.others()[cell]));
    }
    return py::none();
  }

 private:
  py::object text_of(const std::string& json) {
    const bool is_plain = json.find('\\') == std::string::npos;
    return is_plain ? to_text(std::string_view(json).substr(1, json.size() - 2)) : loads_(to_text(json));
  }

  const ReportColumns& reports_;
  std::vector<py::object> texts_;
  py::object nan_ = py::float_(std::numeric_limits<double>::quiet_NaN());
  py::object loads_ = py::module_::import("json").attr("loads");
};

py::object values_of(Column& column, Objects& objects) {
  if (column.has_only({Kind::integer})) return to_array<std::int64_t>(std::move(column.cells));
  if (column.has_only({Kind::integer, Kind::number, Kind::missing})) return to_array<double>(as_numbers(column));
  if (column.has_only({Kind::boolean}))
    return to_array<bool>(std::vector<std::uint8_t>(column.cells.begin(), column.cells.end()));
  py::list list(column.cells.size());
  for (std::size_t i = 0; i < column.cells.size(); ++i) list[i] = objects.of(column.kind_of(i), column.cells[i]);
  return list;
}

}  // namespace

void bind_report_columns(py::module_& module) {
  module.def("read_reports", [](const std::string& path) {
    ReportColumns reports = [&] {
      const py::gil_scoped_release unlocked;
      return ReportColumns::read(sys::files(), path);
    }();
    Objects objects(reports);
    py::dict result;
    for (Column& column : reports.columns()) {
      result[to_text(column.name)] = values_of(column, objects);
      column = Column();  // its memory is needed for the others
    }
    return result;
  });
}

}  // namespace lockstep::python
