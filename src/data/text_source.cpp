#include "data/text_source.h"

#include <arrow/array/builder_binary.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/base64.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "base/utf8.h"
#include "data/all_blocks.h"
#include "data/schemas.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

/// So much of one file is parsed to find the types of columns that begin with nulls.
constexpr std::int64_t kBytesForTypes = 16 << 20;

bool lacks_types(const arrow::FieldVector& fields) {
  return std::any_of(fields.begin(), fields.end(), [](const auto& field) {
    return field->type()->id() == arrow::Type::NA || lacks_types(field->type()->fields());
  });
}

}  // namespace

namespace {

/// What another process has found in these files; nothing if they have changed since.
std::optional<std::vector<TextFile>> known_files(const std::vector<File>& found, const Value& index) {
  if (!index.is_object() || index.at("files").size() != found.size()) return std::nullopt;
  std::vector<TextFile> files;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const Value& known = index.at("files")[n];
    if (known.at("path") != found[n].shown() || known.at("size") != found[n].size) return std::nullopt;
    TextFile file{std::make_shared<Text>(found[n]), known.at("names").get<std::vector<std::string>>(),
                  known.at("begin").get<std::int64_t>(), known.at("line").get<std::int64_t>()};
    for (const Value& block : known.at("blocks")) {
      const auto numbers = block.get<std::array<std::int64_t, 4>>();
      file.blocks.push_back({numbers[0], numbers[1], numbers[2], numbers[3]});
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

std::vector<TextFile> index_text(const std::vector<std::string>& paths, const FileOptions& options,
                                 const std::function<TextFile(const std::shared_ptr<const Text>&)>& begin_of,
                                 const RowRules& rules, std::int64_t block_bytes, Skips& skips) {
  const auto found = find_files(paths, options);
  if (auto known = known_files(found, options.index)) return std::move(*known);
  std::int64_t broken = 0;
  const auto refuse = [&](const std::string& error) {
    if (!options.skip_errors) throw StorageError(error);
    skips.add(--broken, 1, {error});  // below the numbers of blocks
  };
  struct Begun {
    TextFile file;
    std::string error;
  };
  const auto begin = [&](std::size_t n) -> Begun {
    const auto text = std::make_shared<Text>(found[n]);
    try {
      return {begin_of(text), ""};
    } catch (const StorageError& error) {
      return {{text}, error.what()};
    }
  };
  std::vector<TextFile> files;
  std::vector<RowsOfText> texts;
  for_all_blocks("open files", found.size(), begin, [&](Begun begun) {
    if (!begun.error.empty()) return refuse(begun.error);
    texts.push_back({begun.file.text, begun.file.begin, begun.file.line});
    files.push_back(std::move(begun.file));
  });
  auto scanned = scan_rows(texts, rules, block_bytes);
  std::vector<TextFile> whole;
  for (std::size_t n = 0; n < files.size(); ++n) {
    if (!scanned[n].error.empty()) {
      refuse(scanned[n].error);
      continue;
    }
    files[n].blocks = std::move(scanned[n].blocks);
    whole.push_back(std::move(files[n]));
  }
  return whole;
}

std::optional<std::int64_t> number_after(std::string_view message, std::string_view mark) {
  const auto found = message.rfind(mark);
  if (found == std::string_view::npos) return std::nullopt;
  message.remove_prefix(found + mark.size());
  std::int64_t number = 0;
  if (std::from_chars(message.data(), message.data() + message.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

TextSource::TextSource(std::string kind, const RowRules& rules, FileOptions options, std::vector<TextFile> files,
                       std::shared_ptr<Skips> skips)
    : rules_(rules),
      options_(std::move(options)),
      files_(std::move(files)),
      kind_(std::move(kind)),
      skips_(std::move(skips)) {
  std::vector<std::int64_t> rows;
  for (std::size_t n = 0; n < files_.size(); ++n) {
    for (const RowBlock& block : files_[n].blocks) {
      places_.push_back({n, block});
      rows.push_back(block.rows);
    }
    files_[n].blocks = {};
  }
  if (!options_.skip_errors) rows_.set_all(std::move(rows));
}

std::string TextSource::description() const {
  return kind_ + ": " + counted(files_.size(), "file") + ", " + counted(places_.size(), "block");
}

std::string TextSource::identity() const {
  std::vector<File> files;
  for (const auto& each : files_) files.push_back(each.text->file());
  return kind_ + identity_of(files);
}

std::vector<std::string> TextSource::files() const {
  std::vector<std::string> paths;
  for (const auto& each : files_) paths.push_back(each.shown());
  return paths;
}

std::int64_t TextSource::size_bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::int64_t{0},
                         [](std::int64_t sum, const TextFile& each) { return sum + each.text->file().size; });
}

Value TextSource::index() const {
  if (skips_->total().count > 0) return {};  // so that others count what is skipped, too
  Value files = Value::array();
  for (const TextFile& file : files_) {
    const File& stored = file.text->file();
    files.push_back({{"path", stored.shown()},
                     {"size", stored.size},
                     {"names", file.names},
                     {"begin", file.begin},
                     {"line", file.line},
                     {"blocks", Value::array()}});
  }
  for (const auto& [number, rows] : places_)
    files[number]["blocks"].push_back({rows.begin, rows.end, rows.rows, rows.first_line});
  const auto schema = value_of(arrow::ipc::SerializeSchema(*schema_), kind_);
  return {{"files", std::move(files)}, {"schema", arrow::util::base64_encode(std::string_view(*schema))}};
}

const std::vector<std::int64_t>& TextSource::rows_of_blocks() const {
  return rows_.all(kind_, places_.size(), [this](std::size_t block) { return rows_of_block(block); });
}

std::int64_t TextSource::rows_of_block(std::size_t block) const {
  if (const auto known = rows_.rows(block)) return *known;
  return read_without_errors(block)->num_rows();
}

TextSource::Part TextSource::part(std::size_t block) const {
  const auto& [number, rows] = places_[block];
  const TextFile& file = files_[number];
  auto text = file.text->read(rows.begin, rows.end);
  if (text->size() != rows.end - rows.begin)
    fail(file.shown(), "has fewer bytes than before: it must not change while the data set is used");
  return {&file, rows, std::move(text)};
}

std::shared_ptr<arrow::Table> TextSource::parse_all(const Part& part, const std::vector<int>& columns) const {
  auto table = parse(part, columns);
  if (table->num_rows() != part.rows.rows)
    fail(where(part, std::nullopt), "the parser finds " + counted(static_cast<std::size_t>(table->num_rows()), "row") +
                                        ", but there are " + std::to_string(part.rows.rows) +
                                        "; a quote may be open, or the file has changed");
  return table;
}

std::vector<std::string> TextSource::without_errors(const Part& part,
                                                    const std::function<void(const Part&)>& use) const {
  std::vector<RowBlock> rows;  // one each
  std::vector<std::string> lost;
  const std::function<void(const Part&, std::size_t, std::size_t)> halve = [&](const Part& now, std::size_t first,
                                                                               std::size_t last) {
    std::string why;
    try {
      return use(now);
    } catch (const StorageError& error) {
      why = error.what();
    }
    if (rows.empty()) {
      RowScanner scanner(rules_, 1, part.rows.begin, part.rows.first_line);
      scanner.feed(text_of(*part.text));
      rows = scanner.finish();
      last = rows.size();
    }
    if (last - first <= 1) return lost.push_back(why);
    const std::size_t middle = first + (last - first) / 2;
    for (const auto& [from, to] : {std::pair{first, middle}, {middle, last}}) {
      RowBlock half{rows[from].begin, rows[to - 1].end, 0, rows[from].first_line};
      for (std::size_t n = from; n < to; ++n) half.rows += rows[n].rows;
      auto text = arrow::SliceBuffer(part.text, half.begin - part.rows.begin, half.end - half.begin);
      halve({now.file, half, std::move(text)}, from, to);
    }
  };
  halve(part, 0, 0);
  return lost;
}

std::shared_ptr<arrow::Table> TextSource::read_without_errors(std::size_t block) const {
  std::vector<int> all(static_cast<std::size_t>(schema_->num_fields()));
  std::iota(all.begin(), all.end(), 0);
  Tables tables;
  const auto found = part(block);
  const auto lost = without_errors(found, [&](const Part& part) { tables.push_back(parse_all(part, all)); });
  skips_->add(static_cast<std::int64_t>(block), static_cast<std::int64_t>(lost.size()), lost);
  const auto table = tables.empty() ? value_of(arrow::Table::MakeEmpty(schema_), "an empty block")
                                    : value_of(arrow::ConcatenateTables(tables), where(found, std::nullopt));
  rows_.set(block, table->num_rows());
  return table;
}

std::shared_ptr<arrow::Table> TextSource::read(std::size_t block, const std::vector<int>& columns) const {
  // Whether a line is broken must not depend on the columns.
  const auto known = rows_.rows(block);
  if (known == places_[block].rows.rows) return parse_all(part(block), columns);
  const auto table = read_without_errors(block);
  if (known && table->num_rows() != *known)
    fail(files_[places_[block].file].shown(), "has changed: it must not change while the data set is used");
  return value_of(table->SelectColumns(columns), kind_);
}

bool TextSource::read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const {
  if (!expects_numbers() || rows_.rows(block) != places_[block].rows.rows) return false;
  return parse_numbers(part(block), columns, room.bytes);
}

std::string TextSource::where(const Part& part, std::optional<std::int64_t> row) const {
  const std::string path = part.file->shown();
  if (part.rows.rows == 1) row = 0;
  if (row && *row >= 0)
    return path + ", line " +
           std::to_string(part.rows.first_line + lines_before_row(text_of(*part.text), rules_, *row));
  return path + ", bytes " + std::to_string(part.rows.begin) + " to " + std::to_string(part.rows.end) + " (from line " +
         std::to_string(part.rows.first_line) + ")";
}

std::shared_ptr<arrow::Schema> TextSource::infer(
    const std::function<std::shared_ptr<arrow::Schema>(const Part&)>& schema_of) const {
  if (options_.index.is_object()) {
    const auto bytes = arrow::Buffer::FromString(
        value_of(arrow::util::base64_decode(options_.index.at("schema").get<std::string>()), kind_));
    arrow::io::BufferReader reader(bytes);
    arrow::ipc::DictionaryMemo memo;
    return value_of(arrow::ipc::ReadSchema(&reader, &memo), kind_);
  }
  const auto merge = [](std::shared_ptr<arrow::Schema>& known, const std::string& known_file,
                        const std::shared_ptr<arrow::Schema>& more,
                        const std::string& file) { known = known ? merged(*known, known_file, *more, file) : more; };
  const auto of_block = [&](std::size_t block) {
    std::shared_ptr<arrow::Schema> schema;
    const auto use = [&](const Part& part) { merge(schema, part.file->shown(), schema_of(part), part.file->shown()); };
    if (options_.skip_errors)
      without_errors(part(block), use);
    else
      use(part(block));
    return schema;
  };
  // The first blocks of the files that are looked at.
  std::vector<std::size_t> firsts;
  for (std::size_t block = 0; block < places_.size(); ++block)
    if (block == 0 || (options_.unify_schemas && places_[block].file != places_[block - 1].file))
      firsts.push_back(block);
  const auto of_file = [&](std::size_t n) {
    const std::size_t file = places_[firsts[n]].file;
    auto schema = of_block(firsts[n]);
    for (std::size_t block = firsts[n] + 1;
         block < places_.size() && places_[block].file == file &&
         places_[block].rows.begin < places_[firsts[n]].rows.begin + kBytesForTypes &&
         (!schema || lacks_types(schema->fields()));
         ++block)
      if (const auto more = of_block(block)) schema = schema ? with_types_for_nulls(*schema, *more) : more;
    return schema;
  };
  std::shared_ptr<arrow::Schema> schema;
  std::string first_file;
  std::size_t next = 0;
  for_all_blocks("find types", firsts.size(), of_file, [&](const std::shared_ptr<arrow::Schema>& found) {
    const std::string file = files_[places_[firsts[next++]].file].shown();
    if (!found) return;
    if (first_file.empty()) first_file = file;
    merge(schema, first_file, found, file);
  });
  return schema ? schema : arrow::schema({});
}

namespace {

/// Each line is a row of one column.
class LineSource final : public TextSource {
 public:
  LineSource(const RowRules& rules, const FileOptions& options, std::vector<TextFile> files,
             std::shared_ptr<Skips> skips)
      : TextSource("read_text", rules, options, std::move(files), std::move(skips)) {
    schema_ = arrow::schema({arrow::field("text", arrow::utf8())});
  }

 private:
  std::shared_ptr<arrow::Table> parse(const Part& part, const std::vector<int>& columns) const override {
    arrow::StringBuilder builder;
    std::string_view rest = text_of(*part.text);
    while (!rest.empty()) {
      auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (rules_.skip_blank && line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      if (!is_utf8(line)) fail(where(part, builder.length()), "is not UTF-8");
      check(builder.Append(line), where(part, std::nullopt));
    }
    const auto array = value_of(builder.Finish(), where(part, std::nullopt));
    return value_of(arrow::Table::Make(schema_, {array})->SelectColumns(columns), "read_text");
  }

  static bool is_utf8(std::string_view text) {
    while (!text.empty()) {
      // Most text is ASCII.
      const auto plain = std::find_if(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
      text.remove_prefix(static_cast<std::size_t>(plain - text.begin()));
      if (text.empty()) return true;
      const auto [kind, length] = utf8_sequence(text);
      if (kind != Utf8::whole) return false;
      text.remove_prefix(length);
    }
    return true;
  }
};

}  // namespace

std::shared_ptr<Source> open_text(const std::vector<std::string>& paths, const TextOptions& options) {
  const RowRules rules{.skip_empty = options.drop_empty_lines, .skip_blank = options.drop_empty_lines};
  const auto begin = [](const std::shared_ptr<const Text>& text) { return TextFile{text, {}, text_begin(*text)}; };
  auto skips = std::make_shared<Skips>();
  auto files = index_text(paths, options.files, begin, rules, options.block_bytes, *skips);
  return std::make_shared<LineSource>(rules, options.files, std::move(files), std::move(skips));
}

}  // namespace lockstep::data
