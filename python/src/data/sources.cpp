// The functions that open sources.

#include "sources.h"

#include <arrow/buffer.h>
#include <arrow/c/abi.h>
#include <arrow/c/bridge.h>
#include <arrow/csv/options.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/value_parsing.h>
#include <pybind11/stl.h>

#include "base/json.h"
#include "bindings.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/status.h"

namespace lockstep::python {
namespace {

namespace py = pybind11;

using data::Dataset;
using data::value_of;
using Paths = std::vector<std::string>;

/// Opening may read every file.
template <class Open, class Options>
Dataset opened(Open open, const Paths& paths, const Options& options) {
  return watched([&] { return Dataset(open(paths, options)); });
}

/// The schema of an object like pyarrow.Schema; null for None.
std::shared_ptr<arrow::Schema> to_schema(const py::object& object) {
  if (object.is_none()) return nullptr;
  const py::capsule capsule = object.attr("__arrow_c_schema__")();
  return value_of(arrow::ImportSchema(capsule.get_pointer<ArrowSchema>()), "the schema");
}

std::shared_ptr<arrow::Table> to_table(const py::object& object, const std::string& where) {
  const py::capsule stream = object.attr("__arrow_c_stream__")();
  const auto reader = value_of(arrow::ImportRecordBatchReader(stream.get_pointer<ArrowArrayStream>()), where);
  return value_of(reader->ToTable(), where);
}

char character(const py::dict& options, const char* name) {
  const auto text = options[name].cast<std::string>();
  return text.empty() ? '\0' : text.front();
}

/// The options of read_csv(), checked there.
data::CsvOptions to_csv_options(const py::dict& options, const data::FileOptions& files) {
  data::CsvOptions csv;
  csv.files = files;
  csv.delimiter = character(options, "delimiter");
  csv.quote = character(options, "quote_char");
  csv.escape = character(options, "escape_char");
  csv.double_quote = options["double_quote"].cast<bool>();
  csv.skip_empty = options["ignore_empty_lines"].cast<bool>();
  csv.column_names = options["column_names"].cast<std::vector<std::string>>();
  csv.number_names = options["autogenerate_column_names"].cast<bool>();
  csv.skip_lines = options["skip_rows"].cast<std::int64_t>();
  csv.skip_rows = options["skip_rows_after_names"].cast<std::int64_t>();
  csv.types = to_schema(options["column_types"]);
  csv.block_bytes = options["block_bytes"].cast<std::int64_t>();
  if (const py::object given = options["convert"]; !given.is_none()) {
    auto convert = std::make_shared<arrow::csv::ConvertOptions>(arrow::csv::ConvertOptions::Defaults());
    const auto take = [&]<class T>(T& field, const char* name) { field = given.attr(name).template cast<T>(); };
    take(convert->check_utf8, "check_utf8");
    take(convert->null_values, "null_values");
    take(convert->true_values, "true_values");
    take(convert->false_values, "false_values");
    take(convert->strings_can_be_null, "strings_can_be_null");
    take(convert->quoted_strings_can_be_null, "quoted_strings_can_be_null");
    take(convert->auto_dict_encode, "auto_dict_encode");
    take(convert->auto_dict_max_cardinality, "auto_dict_max_cardinality");
    const auto point = given.attr("decimal_point").cast<std::string>();
    convert->decimal_point = point.empty() ? '.' : point.front();
    for (const auto& format : options["timestamp_formats"].cast<std::vector<std::string>>())
      convert->timestamp_parsers.push_back(format.empty() ? arrow::TimestampParser::MakeISO8601()
                                                          : arrow::TimestampParser::MakeStrptime(format));
    csv.convert = std::move(convert);
  }
  return csv;
}

/// Files that Python code decodes.
struct Files {
  std::vector<data::File> files;

  const data::File& at(std::size_t number) const {
    if (number >= files.size()) throw py::index_error("there are " + std::to_string(files.size()) + " files");
    return files[number];
  }
  py::bytes read(std::size_t number, std::int64_t begin, std::int64_t end) const {
    const data::File& file = at(number);
    std::shared_ptr<arrow::Buffer> buffer;
    {
      const py::gil_scoped_release released;
      buffer = file.read(begin, std::min(end, file.size));
    }
    return {reinterpret_cast<const char*>(buffer->data()), static_cast<std::size_t>(buffer->size())};
  }
};

/// Calls Python from a thread of C++.
template <class Call>
auto with_gil(const Call& call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw PythonError(error);
  }
}

/// Rows that Python code makes. The object has `description`, `identity`, `schema`, `paths`, `size_bytes` and
/// `is_borrowed`; `rows_of_blocks()`, which may read; `read(block, columns)`, which gives an object with
/// `__arrow_c_stream__`; and `skipped()`.
class PythonSource final : public data::Source {
 public:
  explicit PythonSource(const py::object& object)
      : object_(shared_reference(object)),
        description_(object.attr("description").cast<std::string>()),
        identity_(object.attr("identity").cast<std::string>()),
        schema_(to_schema(object.attr("schema"))),
        paths_(object.attr("paths").cast<Paths>()),
        size_bytes_(object.attr("size_bytes").cast<std::int64_t>()),
        is_borrowed_(object.attr("is_borrowed").cast<bool>()) {}

  std::string description() const override { return description_; }
  std::string identity() const override { return identity_; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override {
    return *with_gil([&] {
      if (rows_) return &*rows_;
      auto rows = object().attr("rows_of_blocks")().cast<std::vector<std::int64_t>>();
      if (!rows_) rows_ = std::move(rows);  // another thread may have been quicker
      return &*rows_;
    });
  }
  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    return with_gil([&] { return to_table(object().attr("read")(block, columns), description_); });
  }
  bool is_borrowed() const override { return is_borrowed_; }
  std::vector<std::string> files() const override { return paths_; }
  std::int64_t size_bytes() const override { return size_bytes_; }
  data::Skipped skipped() const override {
    const py::gil_scoped_acquire gil;
    const auto places = object().attr("skipped")().cast<std::vector<std::string>>();
    return {static_cast<std::int64_t>(places.size()), places};
  }

 private:
  py::object object() const { return py::reinterpret_borrow<py::object>(object_.get()); }

  std::shared_ptr<PyObject> object_;
  std::string description_;
  std::string identity_;
  std::shared_ptr<arrow::Schema> schema_;
  Paths paths_;
  std::int64_t size_bytes_;
  bool is_borrowed_;
  mutable std::optional<std::vector<std::int64_t>> rows_;  ///< guarded by the GIL
};

}  // namespace

void bind_sources(py::module_& module) {
  module.attr("TEXT_BLOCK") = data::kTextBlock;
  module.attr("PARQUET_PIECE") = data::kParquetPiece;

  py::class_<data::FileOptions>(module, "FileOptions")
      .def(py::init([](const py::object& filesystem, bool skip_errors, bool unify_schemas, bool ignore_missing_paths,
                       std::vector<std::string> extensions, const std::string& index) {
             return data::FileOptions{to_file_system(filesystem),
                                      skip_errors,
                                      unify_schemas,
                                      ignore_missing_paths,
                                      std::move(extensions),
                                      index.empty() ? Value() : parse_json(index, "index")};
           }),
           py::kw_only(), py::arg("filesystem") = py::none(), py::arg("skip_errors") = false,
           py::arg("unify_schemas") = false, py::arg("ignore_missing_paths") = false,
           py::arg("extensions") = std::vector<std::string>(), py::arg("index") = "");

  module.def("read_parquet", [](const Paths& paths, const data::FileOptions& files, std::int64_t piece_bytes) {
    return opened(&data::open_parquet, paths, data::ParquetOptions{files, piece_bytes});
  });
  module.def("read_csv", [](const Paths& paths, const data::FileOptions& files, const py::dict& options) {
    return opened(&data::open_csv, paths, to_csv_options(options, files));
  });
  module.def("read_json", [](const Paths& paths, const data::FileOptions& files, const py::object& schema,
                             std::int64_t block_bytes) {
    return opened(&data::open_json, paths, data::JsonOptions{to_schema(schema), block_bytes, files});
  });
  module.def("read_text",
             [](const Paths& paths, const data::FileOptions& files, bool drop_empty_lines, std::int64_t block_bytes) {
               return opened(&data::open_text, paths, data::TextOptions{drop_empty_lines, block_bytes, files});
             });
  module.def("read_binary_files", [](const Paths& paths, const data::FileOptions& files, bool include_paths) {
    return opened(&data::open_binary, paths, data::BinaryOptions{include_paths, files});
  });
  // A stream may be made by Python code: it is read with the GIL.
  module.def("from_stream", [](const py::object& object, const std::string& name) {
    const py::capsule capsule = object.attr("__arrow_c_stream__")();
    return Dataset(data::open_table(capsule.get_pointer<ArrowArrayStream>(), name));
  });
  module.def("from_python", [](const py::object& object) { return Dataset(std::make_shared<PythonSource>(object)); });
  module.def("range", [](std::int64_t count) { return Dataset(data::open_range(count)); });

  py::class_<Files>(module, "Files")
      .def("__len__", [](const Files& files) { return files.files.size(); })
      .def("path", [](const Files& files, std::size_t number) { return files.at(number).shown(); })
      .def("name", [](const Files& files, std::size_t number) { return std::string(files.at(number).name()); })
      .def("size", [](const Files& files, std::size_t number) { return files.at(number).size; })
      .def("read", &Files::read, py::arg("number"), py::arg("begin") = 0,
           py::arg("end") = std::numeric_limits<std::int64_t>::max())
      .def("identity", [](const Files& files) { return data::identity_of(files.files); });
  module.def("find_files", [](const Paths& paths, const data::FileOptions& options) {
    return Files{watched([&] { return data::find_files(paths, options); })};
  });
}

}  // namespace lockstep::python
