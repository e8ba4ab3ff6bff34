#include "metrics/report_columns.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <lockstep/error.h>
#include <optional>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace lockstep::metrics {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::uint64_t bits_of(double number) { return std::bit_cast<std::uint64_t>(number); }

double number_of(std::string_view text) {
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  return number;
}

}  // namespace

/// Goes through one line of JSON. Throws StorageError where it is not JSON.
class ReportColumns::Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw StorageError(why + " at character " + std::to_string(at_ + 1));
  }
  /// The next character that is not a space; '\0' at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
    return peek();
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("there is no '") + c + "'");
  }
  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect_end() {
    next();
    if (at_ < text_.size()) fail("there is more text");
  }

  /// With its quotes and escapes.
  std::string_view string() {
    if (next() != '"') fail("there is no string");
    const std::size_t begin = at_++;
    while (peek() != '"') skip_character();
    ++at_;
    return text_.substr(begin, at_ - begin);
  }

  struct Number {
    std::string_view text;
    bool is_integer = true;
  };
  Number number() {
    const std::size_t begin = at_;
    Number found;
    if (peek() == '-') ++at_;
    const std::size_t first = at_;
    skip_digits();
    if (at_ - first > 1 && text_[first] == '0') fail("a number begins with 0");
    if (peek() == '.') {
      found.is_integer = false;
      ++at_;
      skip_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      found.is_integer = false;
      ++at_;
      if (peek() == '-' || peek() == '+') ++at_;
      skip_digits();
    }
    found.text = text_.substr(begin, at_ - begin);
    return found;
  }

  /// NaN, Infinity or -Infinity.
  std::optional<double> float_word() {
    if (take_word("NaN")) return std::numeric_limits<double>::quiet_NaN();
    if (take_word("Infinity")) return std::numeric_limits<double>::infinity();
    if (take_word("-Infinity")) return -std::numeric_limits<double>::infinity();
    return std::nullopt;
  }

  /// Any value.
  std::string_view value(int depth) {
    check_depth(depth);
    const char first = next();
    const std::size_t begin = at_;
    if (first == '"') {
      string();
    } else if (first == '[' || first == '{') {
      const char last = first == '[' ? ']' : '}';
      ++at_;
      if (!take(last)) {
        do {
          if (first == '{') string(), expect(':');
          value(depth + 1);
        } while (take(','));
        expect(last);
      }
    } else if (!take_word("true") && !take_word("false") && !take_word("null") && !float_word()) {
      number();
    }
    return text_.substr(begin, at_ - begin);
  }

  void check_depth(int depth) const {
    if (depth > kMaxJsonDepth) fail("it is nested more than " + std::to_string(kMaxJsonDepth) + " levels deep");
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_digits() {
    if (!is_digit(peek())) fail("there is no digit");
    while (is_digit(peek())) ++at_;
  }

  /// A character of a string.
  void skip_character() {
    const auto c = static_cast<unsigned char>(peek());
    if (c < 32) fail("a string does not end, or has a control character,");
    if (c == '\\') return skip_escape();
    if (c < 128) {
      ++at_;
      return;
    }
    const auto [found, size] = utf8_sequence(text_.substr(at_));
    if (found != Utf8::whole) fail("there are bytes that are not UTF-8");
    at_ += size;
  }

  void skip_escape() {
    const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const std::string_view digits = kind == 'u' ? text_.substr(at_ + 2, 4) : std::string_view();
    const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
    const bool known = kind != '\0' && std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos;
    if (!known && (digits.size() != 4 || !std::ranges::all_of(digits, is_hex))) fail("there is an unknown escape");
    at_ += 2 + digits.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// ---------------------------------------------------------------- columns

bool ReportColumns::Column::has_only(std::initializer_list<Kind> allowed) const {
  std::size_t found = 0;
  for (const Kind each : allowed) found += of_kind_[static_cast<std::size_t>(each)];
  return found == cells.size();
}

void ReportColumns::Column::add(Kind of, std::uint64_t cell) {
  if (cells.empty()) kind = of;
  if (kinds.empty() && of != kind) kinds.assign(cells.size(), kind);
  cells.push_back(cell);
  if (!kinds.empty()) kinds.push_back(of);
  ++of_kind_[static_cast<std::size_t>(of)];
}

/// Reports without the key, up to this many.
void ReportColumns::Column::fill(std::size_t reports) {
  while (cells.size() < reports) add(Kind::missing, 0);
}

void ReportColumns::Column::set(std::size_t report, Kind of, std::uint64_t cell) {
  fill(report);
  if (cells.size() > report) {  // two keys of the report give this path: the later one counts
    --of_kind_[static_cast<std::size_t>(kind_of(report))];
    cells.pop_back();
    if (!kinds.empty()) kinds.pop_back();
  }
  add(of, cell);
}

/// Most reports have the keys of the one before in the same order.
ReportColumns::Column& ReportColumns::column_of(std::string_view key) {
  const std::size_t position = position_++;
  if (position < order_.size()) {
    Column& likely = columns_[order_[position]];
    if (likely.name.size() == prefix_.size() + key.size() && likely.name.starts_with(prefix_) &&
        likely.name.ends_with(key))
      return likely;
  } else {
    order_.resize(position + 1);
  }
  name_.assign(prefix_).append(key);
  const auto [found, is_new] = by_name_.try_emplace(name_, columns_.size());
  if (is_new) columns_.emplace_back().name = name_;
  order_[position] = found->second;
  return columns_[found->second];
}

std::size_t ReportColumns::index_of(std::string_view text, std::size_t likely) {
  if (likely < texts_.size() && texts_[likely] == text) return likely;
  const auto [found, is_new] = by_text_.try_emplace(std::string(text), texts_.size());
  if (is_new) texts_.emplace_back(text);
  return found->second;
}

// ---------------------------------------------------------------- reading

void ReportColumns::read_leaf(Scanner& scanner, Column& column) {
  const char first = scanner.next();
  if (first == '"') {
    column.same_as_before_ = index_of(scanner.string(), column.same_as_before_);
    return column.set(reports_, Kind::text, column.same_as_before_);
  }
  if (scanner.take_word("true")) return column.set(reports_, Kind::boolean, 1);
  if (scanner.take_word("false")) return column.set(reports_, Kind::boolean, 0);
  if (scanner.take_word("null")) return column.set(reports_, Kind::null, 0);
  const auto add_other = [&](std::string_view json) {
    others_.emplace_back(json);
    column.set(reports_, Kind::json, others_.size() - 1);
  };
  if (first == '[') return add_other(scanner.value(0));
  if (const auto number = scanner.float_word()) return column.set(reports_, Kind::number, bits_of(*number));
  const Scanner::Number found = scanner.number();
  if (!found.is_integer) return column.set(reports_, Kind::number, bits_of(number_of(found.text)));
  std::int64_t integer = 0;
  const auto end = std::from_chars(found.text.data(), found.text.data() + found.text.size(), integer);
  if (end.ec == std::errc::result_out_of_range) return add_other(found.text);
  column.set(reports_, Kind::integer, static_cast<std::uint64_t>(integer));
}

void ReportColumns::read_object(Scanner& scanner, int depth) {
  scanner.check_depth(depth);
  scanner.expect('{');
  if (scanner.take('}')) return;
  do {
    const std::string_view raw = scanner.string();
    const std::string unescaped =
        raw.find('\\') == std::string_view::npos ? "" : parse_json(raw, "a key").get<std::string>();
    const std::string_view key = unescaped.empty() ? raw.substr(1, raw.size() - 2) : std::string_view(unescaped);
    scanner.expect(':');
    if (scanner.next() != '{') {
      read_leaf(scanner, column_of(key));
      continue;
    }
    const std::size_t length = prefix_.size();
    prefix_.append(key).append("/");
    read_object(scanner, depth + 1);
    prefix_.resize(length);
  } while (scanner.take(','));
  scanner.expect('}');
}

void ReportColumns::add_report(std::string_view line) {
  Scanner scanner(line);
  if (scanner.next() != '{') throw StorageError("it is not a JSON object");
  position_ = 0;
  prefix_.clear();
  read_object(scanner, 0);
  scanner.expect_end();
  ++reports_;
  for (Column& column : columns_) column.fill(reports_);
}

ReportColumns ReportColumns::read(sys::Files& files, const std::filesystem::path& path, std::size_t block) {
  ReportColumns result;
  if (files.info(path).kind == sys::FileKind::none) return result;
  const auto add = [&](std::string_view line) {
    try {
      result.add_report(line);
    } catch (const StorageError& error) {
      throw StorageError("[result] line " + std::to_string(result.reports_ + 1) + " of " + path.string() +
                         " is not what Lockstep writes: " + error.what());
    }
  };
  sys::OpenFile file = files.open(path, sys::OpenMode::read);
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + block);
    const std::size_t size = files.read(file, std::as_writable_bytes(std::span(text).subspan(before)));
    text.resize(before + size);
    if (size == 0) break;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n', before); end != std::string::npos; end = text.find('\n', begin)) {
      add(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
  if (text.empty()) return result;
  try {
    Scanner last(text);
    last.value(0);
    last.expect_end();
  } catch (const StorageError&) {  // half a line
    return result;
  }
  add(text);
  return result;
}

}  // namespace lockstep::metrics
