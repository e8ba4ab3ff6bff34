#include "metrics/csv_sink.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/utf8.h"
#include "metrics/flatten.h"

namespace lockstep::metrics {
namespace {

/// One row of a table without its line end, and how many cells it has.
struct Record {
  std::string_view text;
  std::size_t cells = 1;
};

/// Removes the first complete record from `rest`; nothing if there is no line end.
std::optional<Record> next_record(std::string_view& rest) {
  Record record;
  bool quoted = false;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const char c = rest[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      ++record.cells;
    } else if (!quoted && c == '\n') {
      record.text = rest.substr(0, i);
      if (record.text.ends_with('\r')) record.text.remove_suffix(1);
      rest.remove_prefix(i + 1);
      return record;
    }
  }
  return std::nullopt;
}

std::vector<std::string> split_cells(std::string_view row) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const char c = row[i];
    if (c == '"' && quoted && i + 1 < row.size() && row[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

/// Whether this text needs no quoting.
bool is_plain(std::string_view text) {
  static constexpr auto kSpecial = [] {
    std::array<bool, 256> special{};
    for (std::size_t c = 128; c < 256; ++c) special[c] = true;  // may be invalid UTF-8
    for (const char c : {'"', ',', '\r', '\n'}) special[static_cast<std::size_t>(c)] = true;
    return special;
  }();
  bool special = text.empty();
  for (const char c : text) special |= kSpecial[static_cast<unsigned char>(c)];
  return !special;
}

void append_text(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    out += text;
    return;
  }
  const std::string valid = valid_utf8(text);
  if (!valid.empty() && valid.find_first_of("\",\r\n") == std::string::npos) {
    out += valid;
    return;
  }
  out += '"';
  for (const char c : valid) {
    if (c == '"') out += c;
    out += c;
  }
  out += '"';
}

template <class Number>
void append_number(std::string& out, Number number) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof text, number).ptr);
}

void append_cell(std::string& out, const Value& value) {
  switch (value.type()) {
    case Value::value_t::null:
    case Value::value_t::discarded:
      return;
    case Value::value_t::boolean:
      out += value.get<bool>() ? "True" : "False";
      return;
    case Value::value_t::number_integer:
      return append_number(out, value.get<std::int64_t>());
    case Value::value_t::number_unsigned:
      return append_number(out, value.get<std::uint64_t>());
    case Value::value_t::number_float: {
      const double number = value.get<double>();
      // Python's spelling; the sign of a NaN is ignored.
      if (std::isnan(number))
        out += "nan";
      else if (std::isinf(number))
        out += number > 0 ? "inf" : "-inf";
      else
        append_json_number(out, number);
      return;
    }
    case Value::value_t::string:
      return append_text(out, value.get_ref<const std::string&>());
    default:
      return append_text(out, to_json(value));
  }
}

void append_padded(std::string& out, const Record& record, std::size_t cells) {
  out += record.text;
  if (record.cells < cells) out.append(cells - record.cells, ',');
  out += '\n';
}

}  // namespace

void cut_last_row(sys::Files& files, const std::filesystem::path& path) {
  std::size_t last = 0;
  {
    const sys::Mapping existing = map_existing(files, path);
    const std::string_view text = text_of(existing);
    std::string_view rest = text;
    do {
      last = text.size() - rest.size();
    } while (next_record(rest) && !rest.empty());
  }
  cut_file(files, path, last);
}

CsvSink::~CsvSink() {
  try {
    close();
  } catch (const StorageError&) {  // callers that need the error call close()
  }
}

void CsvSink::start(const Value& /*config*/) {
  std::size_t whole = 0;
  std::size_t size = 0;
  {
    const sys::Mapping existing = map_existing(file_.files(), file_.path());
    std::string_view rest = text_of(existing);
    size = rest.size();
    if (const auto header = next_record(rest)) columns_ = split_cells(header->text);
    while (next_record(rest)) {
    }
    whole = size - rest.size();
  }
  if (whole < size) cut_file(file_.files(), file_.path(), whole);
  for (std::size_t i = 0; i < columns_.size(); ++i) index_.emplace(columns_[i], i);
  columns_in_file_ = columns_.size();
  file_.open(sys::OpenMode::append);
}

void CsvSink::write(const Value& result, long /*step*/) {
  cells_.assign(columns_.size(), nullptr);
  std::size_t position = 0;
  for_each_leaf(result, prefix_, [&](std::string_view key, const Value& value) {
    const std::size_t column = column_of(key, position++);
    if (column >= cells_.size()) cells_.resize(column + 1);
    cells_[column] = &value;
  });
  std::string& out = file_.buffer();
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (i > 0) out += ',';
    if (cells_[i] != nullptr) append_cell(out, *cells_[i]);
  }
  out += '\n';
  if (out.size() >= AppendFile::kBufferSize) flush();
}

std::size_t CsvSink::column_of(std::string_view key, std::size_t position) {
  // If a result has the same keys as the previous one, no hash lookup is needed.
  if (position < order_.size() && columns_[order_[position]] == key) return order_[position];
  const auto [found, is_new] = index_.try_emplace(valid_utf8(key), columns_.size());
  if (is_new) columns_.push_back(found->first);
  if (position >= order_.size()) order_.resize(position + 1);
  return order_[position] = found->second;
}

void CsvSink::flush() {
  if (columns_in_file_ == 0)
    begin();
  else if (columns_.size() > columns_in_file_)
    widen();
  file_.flush();
}

void CsvSink::close() {
  if (!file_.is_open()) return;
  flush();
  file_.close();
}

void CsvSink::append_header(std::string& out) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) out += ',';
    append_text(out, columns_[i]);
  }
  out += '\n';
}

void CsvSink::begin() {
  if (columns_.empty()) return;
  std::string whole;
  append_header(whole);
  std::string_view rows = file_.buffer();
  while (const auto record = next_record(rows)) append_padded(whole, *record, columns_.size());
  file_.buffer() = std::move(whole);
  columns_in_file_ = columns_.size();
}

void CsvSink::widen() {
  AppendFile wider(file_.files(), std::filesystem::path(file_.path()) += ".tmp");
  wider.open(sys::OpenMode::replace);
  try {
    std::string& out = wider.buffer();
    append_header(out);
    const sys::Mapping existing = map_existing(file_.files(), file_.path());
    std::string_view rest = text_of(existing);
    const bool has_header = next_record(rest).has_value();  // the old one
    const auto copy_rows = [&](std::string_view& rows) {
      while (const auto record = next_record(rows)) {
        append_padded(out, *record, columns_.size());
        wider.end_record();
      }
    };
    copy_rows(rest);
    // After an error a row may be split: its beginning in the file, its end in the buffer.
    const std::string unwritten = std::string(rest) + file_.buffer();
    std::string_view rows = unwritten;
    if (!has_header) next_record(rows);  // it is split, too
    copy_rows(rows);
    wider.sync();  // a power cut must not lose rows that were already safe
    wider.rename(file_.path());
  } catch (const StorageError&) {
    ::unlink(wider.path().c_str());
    throw;
  }
  file_ = std::move(wider);
  columns_in_file_ = columns_.size();
}

}  // namespace lockstep::metrics
