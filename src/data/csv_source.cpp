#include <arrow/buffer.h>
#include <arrow/csv/api.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/text.h"
#include "data/csv_numbers.h"
#include "data/numbers.h"
#include "data/schemas.h"
#include "data/status.h"
#include "data/text_source.h"

namespace lockstep::data {
namespace {

arrow::csv::ParseOptions parse_options(const RowRules& rules) {
  auto parse = arrow::csv::ParseOptions::Defaults();
  parse.delimiter = rules.delimiter;
  parse.quoting = rules.quote != '\0';
  if (parse.quoting) parse.quote_char = rules.quote;
  parse.double_quote = rules.double_quote;
  parse.escaping = rules.escape != '\0';
  if (parse.escaping) parse.escape_char = rules.escape;
  parse.ignore_empty_lines = rules.skip_empty;
  parse.newlines_in_values = true;
  return parse;
}

/// Without names, the first row names the columns, or they are numbered.
arrow::Result<std::shared_ptr<arrow::Table>> parse_csv(const std::shared_ptr<arrow::Buffer>& text,
                                                       const RowRules& rules, const std::vector<std::string>& names,
                                                       const arrow::csv::ConvertOptions& convert,
                                                       bool number_names = false) {
  if (text->size() >= INT32_MAX) return arrow::Status::Invalid("a row is longer than 2 GB");
  auto read = arrow::csv::ReadOptions::Defaults();
  read.use_threads = false;
  read.block_size = static_cast<std::int32_t>(text->size()) + 1;  // one block: it is parsed here and now
  read.column_names = names;
  read.autogenerate_column_names = number_names;
  ARROW_ASSIGN_OR_RAISE(
      const auto reader,
      arrow::csv::TableReader::Make(arrow::io::default_io_context(), std::make_shared<arrow::io::BufferReader>(text),
                                    read, parse_options(rules), convert));
  return reader->Read();
}

void refuse_repeated(const std::vector<std::string>& names, const std::string& path) {
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second) fail(path, "has two columns named " + in_quotes(name));
}

/// The beginning of a file, before its rows.
struct Prologue {
  std::string_view names;  ///< the row that names or numbers the columns
  std::size_t length = 0;
};

/// Nothing: `head` must be longer to tell. It is never too short if it is the whole text.
std::optional<Prologue> prologue_of(std::string_view head, bool whole, const RowRules& rules,
                                    const CsvOptions& options) {
  Prologue found;
  for (std::int64_t n = 0; n < options.skip_lines; ++n) {
    const auto end = head.find('\n', found.length);
    if (end == std::string_view::npos && !whole) return std::nullopt;
    found.length = end == std::string_view::npos ? head.size() : end + 1;
  }
  const auto take_row = [&](const RowRules& by) -> std::optional<std::string_view> {
    const auto rest = head.substr(found.length);
    auto length = first_row_length(rest, by);
    if (length < 0 && !whole) return std::nullopt;
    if (length < 0) length = static_cast<std::int64_t>(rest.size());
    return rest.substr(0, static_cast<std::size_t>(length));
  };
  if (options.column_names.empty()) {
    const auto row = take_row(rules);
    if (!row) return std::nullopt;
    found.names = *row;
    if (!options.number_names) found.length += row->size();
  }
  RowRules all = rules;
  all.skip_empty = false;
  for (std::int64_t n = 0; n < options.skip_rows; ++n) {
    const auto row = take_row(all);
    if (!row) return std::nullopt;
    found.length += row->size();
  }
  return found;
}

/// Finds the names of the columns, if the file has them, and where its rows begin.
TextFile begin_csv(const std::shared_ptr<const Text>& text, const RowRules& rules, const CsvOptions& options) {
  TextFile found{text, options.column_names};
  const std::int64_t begin = text_begin(*text);
  std::shared_ptr<arrow::Buffer> head;
  std::optional<Prologue> prologue;
  for (std::int64_t size = 1 << 14; !prologue; size *= 4) {
    head = text->read(begin, begin + size);
    prologue = prologue_of(text_of(*head), head->size() < size, rules, options);
  }
  const auto before = text_of(*head).substr(0, prologue->length);
  found.begin = begin + static_cast<std::int64_t>(before.size());
  found.line = 1 + std::count(before.begin(), before.end(), '\n');
  if (!found.names.empty() || prologue->names.find_first_not_of("\r\n") == std::string_view::npos) return found;
  const auto row = arrow::Buffer::FromString(std::string(prologue->names) + "\n");  // the parser needs its end
  const auto table = parse_csv(row, rules, {}, arrow::csv::ConvertOptions::Defaults(), options.number_names);
  found.names = value_of(table, text->file().shown() + ", the names of the columns")->ColumnNames();
  refuse_repeated(found.names, text->file().shown());
  return found;
}

/// Nothing: it is no type of plain numbers.
std::optional<NumberField::Type> number_type(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::DOUBLE:
      return NumberField::Type::float64;
    case arrow::Type::FLOAT:
      return NumberField::Type::float32;
    case arrow::Type::INT64:
      return NumberField::Type::int64;
    case arrow::Type::INT32:
      return NumberField::Type::int32;
    default:
      return std::nullopt;
  }
}

class CsvSource final : public TextSource {
 public:
  CsvSource(const RowRules& rules, const CsvOptions& options, std::vector<TextFile> files, std::shared_ptr<Skips> skips)
      : TextSource("read_csv", rules, options.files, std::move(files), std::move(skips)),
        convert_(options.convert ? *options.convert : arrow::csv::ConvertOptions::Defaults()) {
    convert_.include_columns.clear();
    collect_names();
    if (options.types) add_types(*options.types);
    add_inferred();
    can_parse_numbers_ = convert_.decimal_point == '.' && can_parse_numbers(rules_, convert_.null_values);
  }

 private:
  void collect_names() {
    const TextFile* first = nullptr;
    for (const TextFile& file : files_) {
      if (file.names.empty()) continue;
      if (!first) first = &file;
      if (!options_.unify_schemas && file.names != first->names)
        fail(file.shown(), "has the columns " + joined(file.names, ", ") + ", but " + first->shown() + " has " +
                               joined(first->names, ", ") +
                               "; all files of a data set must have the same columns, or give unify_schemas=True");
      for (const std::string& name : file.names)
        if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
    }
  }

  void add_types(const arrow::Schema& types) {
    for (const auto& field : types.fields()) {
      if (std::find(names_.begin(), names_.end(), field->name()) == names_.end())
        throw ConfigError("[data] column_types names " + in_quotes(field->name()) + ", but the columns are " +
                          joined(names_, ", "));
      convert_.column_types[field->name()] = field->type();
    }
  }

  void add_inferred() {
    const auto found = infer([this](const Part& part) { return parsed(part, convert_)->schema(); });
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const std::string& name : names_) {
      const auto inferred = found->GetFieldByName(name);
      auto& type = convert_.column_types[name];
      if (!type) type = inferred ? inferred->type() : arrow::null();
      fields.push_back(arrow::field(name, type));
    }
    schema_ = arrow::schema(std::move(fields));
  }

  std::shared_ptr<arrow::Table> parsed(const Part& part, const arrow::csv::ConvertOptions& convert) const {
    auto table = parse_csv(part.text, rules_, part.file->names, convert);
    if (table.ok()) return *table;
    const std::string& message = table.status().message();
    const auto row = number_after(message, "Row #");
    fail(where(part, row ? std::optional(*row - 1) : std::nullopt),
         message + "; types are inferred from the beginning of the first file, give others with column_types=");
  }

  bool expects_numbers() const override { return can_parse_numbers_ && other_parts_ <= number_parts_; }

  bool parse_numbers(const Part& part, const std::vector<int>& columns, std::span<std::byte> into) const override {
    if (part.file->names != names_) return false;
    std::vector<NumberField> fields(names_.size());
    std::size_t at = 0;
    for (const int column : columns) {
      const auto& type = *schema_->field(column)->type();
      auto& field = fields[static_cast<std::size_t>(column)];
      if (!number_type(type) || field.into != nullptr) return false;
      field = {*number_type(type), into.data() + at};
      at += aligned_bytes(type, part.rows.rows);
    }
    const bool parsed = data::parse_numbers(text_of(*part.text), part.rows.rows, fields, rules_);
    ++(parsed ? number_parts_ : other_parts_);
    return parsed;
  }

  /// Null if there are other values than plain numbers.
  std::shared_ptr<arrow::Table> parse_numbers(const Part& part, const std::vector<int>& columns) const {
    if (!expects_numbers()) return nullptr;
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns) fields.push_back(schema_->field(column));
    const auto schema = arrow::schema(std::move(fields));
    const std::size_t size = aligned_bytes(*schema, part.rows.rows);
    if (size == 0) return nullptr;
    const std::shared_ptr<arrow::Buffer> memory =
        value_of(arrow::AllocateBuffer(static_cast<std::int64_t>(size)), where(part, std::nullopt));
    const std::span bytes(reinterpret_cast<std::byte*>(memory->mutable_data()), size);
    return parse_numbers(part, columns, bytes) ? table_of_numbers(schema, part.rows.rows, memory) : nullptr;
  }

  std::shared_ptr<arrow::Table> parse(const Part& part, const std::vector<int>& columns) const override {
    if (auto numbers = parse_numbers(part, columns)) return numbers;
    auto convert = convert_;
    convert.include_missing_columns = true;  // other files have them
    for (const int column : columns) convert.include_columns.push_back(names_[static_cast<std::size_t>(column)]);
    return parsed(part, convert);
  }

  std::vector<std::string> names_;
  arrow::csv::ConvertOptions convert_;
  bool can_parse_numbers_ = false;
  mutable std::atomic<std::int64_t> number_parts_ = 0;  ///< that were plain numbers
  mutable std::atomic<std::int64_t> other_parts_ = 0;   ///< that looked as if they might be
};

}  // namespace

std::shared_ptr<Source> open_csv(const std::vector<std::string>& paths, const CsvOptions& options) {
  refuse_repeated(options.column_names, "column_names");
  const RowRules rules{.quotes = true,
                       .delimiter = options.delimiter,
                       .skip_empty = options.skip_empty,
                       .quote = options.quote,
                       .double_quote = options.double_quote,
                       .escape = options.escape};
  const auto begin = [&](const std::shared_ptr<const Text>& text) { return begin_csv(text, rules, options); };
  auto skips = std::make_shared<Skips>();
  auto files = index_text(paths, options.files, begin, rules, options.block_bytes, *skips);
  return std::make_shared<CsvSource>(rules, options, std::move(files), std::move(skips));
}

}  // namespace lockstep::data
