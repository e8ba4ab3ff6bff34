#include "dashboard/series.h"

#include <lockstep/error.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"

namespace lockstep::dashboard {
namespace {

constexpr int kDeepest = 32;
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{64} << 20;
constexpr std::size_t kMostColumns = 2000;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// Reads the numbers of one JSON object, without building it.
class NumberScanner {
 public:
  using Visit = std::function<void(std::string_view, double)>;
  NumberScanner(std::string_view text, const std::vector<std::string_view>& skip, const Visit& visit)
      : text_(text), skip_(skip), visit_(visit) {}

  bool scan() {
    spaces();
    if (!object(0)) return false;
    spaces();
    return at_ == text_.size();
  }

 private:
  bool object(int depth) {
    if (depth > kDeepest || !take('{')) return false;
    spaces();
    if (take('}')) return true;
    do {
      spaces();
      std::string_view key;
      if (!string(&key)) return false;
      spaces();
      if (!take(':')) return false;
      const bool wanted = depth > 0 || std::ranges::find(skip_, key) == skip_.end();
      const std::size_t length = name_.size();
      append_key(key);
      const bool good = value(depth, wanted && muted_ == 0);
      name_.resize(length);
      if (!good) return false;
      spaces();
    } while (take(','));
    return take('}');
  }

  bool value(int depth, bool wanted) {
    spaces();
    if (at_ >= text_.size()) return false;
    const char c = text_[at_];
    if (c == '{') {
      name_ += '/';
      muted_ += wanted ? 0 : 1;
      const bool good = object(depth + 1);
      muted_ -= wanted ? 0 : 1;
      return good;
    }
    if (c == '[') return list(depth + 1);
    if (c == '"') return string(nullptr);
    if (word("null")) return true;
    if (word("true")) return tell(1, wanted);
    if (word("false")) return tell(0, wanted);
    if (word("NaN")) return tell(kMissing, wanted);
    if (word("Infinity")) return tell(std::numeric_limits<double>::infinity(), wanted);
    if (word("-Infinity")) return tell(-std::numeric_limits<double>::infinity(), wanted);
    double number = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error == std::errc::invalid_argument) return false;
    at_ = static_cast<std::size_t>(end - text_.data());
    return tell(error == std::errc() ? number : kMissing, wanted);
  }

  bool list(int depth) {
    if (depth > kDeepest || !take('[')) return false;
    spaces();
    if (take(']')) return true;
    ++muted_;
    bool good = true;
    do good = value(depth, false);
    while (good && (spaces(), take(',')));
    --muted_;
    return good && take(']');
  }

  bool string(std::string_view* contents) {
    if (!take('"')) return false;
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return false;
    if (contents != nullptr) *contents = text_.substr(begin, at_ - begin);
    ++at_;
    return true;
  }

  void append_key(std::string_view key) {
    if (key.find('\\') == std::string_view::npos) {
      name_ += key;
      return;
    }
    try {
      name_ += parse_json("\"" + std::string(key) + "\"", "a key").get<std::string>();
    } catch (const std::exception&) {
      name_ += key;
    }
  }

  bool tell(double number, bool wanted) {
    if (wanted) visit_(name_, number);
    return true;
  }
  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  std::string_view text_;
  const std::vector<std::string_view>& skip_;
  const Visit& visit_;
  std::size_t at_ = 0;
  std::string name_;
  int muted_ = 0;
};

/// What every report repeats, or what is of no use as a curve.
const std::vector<std::string_view>& skipped_keys() {
  static const std::vector<std::string_view> keys = {
      "config",   "pid",           "done", "episodes_total", "timesteps_total",     "timesteps_since_restore",
      "trial_id", "experiment_id", "date", "_timestamp",     "_training_iteration", "_pid"};
  return keys;
}

}  // namespace

bool for_each_number(std::string_view line, const std::vector<std::string_view>& skip,
                     const std::function<void(std::string_view, double)>& visit) {
  return NumberScanner(line, skip, visit).scan();
}

void Series::update(sys::Files& files) {
  sys::OpenFile file;
  try {
    file = files.open(file_, sys::OpenMode::read);
  } catch (const sys::FileError& error) {
    if (!error.is_missing()) throw;
    return;
  }
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) sys::throw_file_error("look at", file_, errno);
  const bool is_other = status.st_dev != device_ || status.st_ino != inode_;
  if (is_other || static_cast<std::uint64_t>(status.st_size) < offset_) {
    *this = [&] {
      Series fresh(file_);
      fresh.generation_ = generation_ + 1;
      fresh.device_ = status.st_dev;
      fresh.inode_ = status.st_ino;
      return fresh;
    }();
  }
  read(file);
}

void Series::read(sys::OpenFile& file) {
  std::vector<char> piece(kPiece);
  while (true) {
    const ssize_t count = ::pread(file.fd.get(), piece.data(), piece.size(), static_cast<off_t>(offset_));
    if (count < 0) sys::throw_file_error("read", file_, errno);
    if (count == 0) return;
    offset_ += static_cast<std::uint64_t>(count);
    std::string_view text(piece.data(), static_cast<std::size_t>(count));
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      if (rest_.empty()) {
        add_line(text.substr(0, end));
      } else {
        rest_ += text.substr(0, end);
        add_line(rest_);
        rest_.clear();
      }
    }
    if (rest_.size() < kLongestLine) rest_ += text;
  }
}

void Series::add_line(std::string_view line) {
  if (line.empty()) return;
  const std::size_t row = rows_;
  guess_ = 0;
  const bool good = for_each_number(line, skipped_keys(), [&](std::string_view name, double number) {
    if (columns_.size() >= kMostColumns && !index_.contains(std::string(name))) return;
    auto& values = column(name).values;
    values.resize(row, kMissing);
    values.push_back(number);
  });
  if (good) {
    ++rows_;
    return;
  }
  ++bad_lines_;
  for (Column& column : columns_)
    if (column.values.size() > row) column.values.resize(row);
}

Series::Column& Series::column(std::string_view name) {
  if (guess_ < columns_.size() && columns_[guess_].name == name) return columns_[guess_++];
  auto found = index_.find(std::string(name));
  if (found == index_.end()) {
    found = index_.emplace(name, columns_.size()).first;
    columns_.push_back({std::string(name), {}});
  }
  guess_ = found->second + 1;
  return columns_[found->second];
}

std::size_t Series::memory() const {
  std::size_t bytes = rest_.capacity();
  for (const Column& column : columns_) bytes += column.values.capacity() * sizeof(double) + 200;
  return bytes;
}

void SeriesCache::with(const std::filesystem::path& file, const std::function<void(const Series&)>& read) {
  std::shared_ptr<Entry> entry;
  {
    const std::scoped_lock lock(mutex_);
    auto& slot = entries_[file];
    if (!slot) slot = std::make_shared<Entry>(file);
    slot->used = ++clock_;
    entry = slot;
  }
  std::size_t memory = 0;
  {
    const std::scoped_lock lock(entry->mutex);
    entry->series.update(files_);
    read(entry->series);
    memory = entry->series.memory();
  }
  const std::scoped_lock lock(mutex_);
  entry->memory = memory;
  drop_oldest();
}

void SeriesCache::drop_oldest() {
  std::size_t sum = 0;
  for (const auto& [file, entry] : entries_) sum += entry->memory;
  while (sum > most_ && entries_.size() > 1) {
    const auto oldest = std::ranges::min_element(entries_, {}, [](const auto& each) { return each.second->used; });
    sum -= std::min(sum, oldest->second->memory);
    entries_.erase(oldest);
  }
}

std::string series_json(const Series& series, std::size_t from, int generation, std::size_t most) {
  const std::size_t rows = series.rows();
  if (generation != series.generation() || from > rows) from = 0;
  const std::size_t stride = std::max<std::size_t>(1, (rows - from + most - 1) / most);
  std::string out = "{\"generation\": " + std::to_string(series.generation()) + ", \"rows\": " + std::to_string(rows) +
                    ", \"first\": " + std::to_string(from) + ", \"stride\": " + std::to_string(stride) +
                    ", \"bad_lines\": " + std::to_string(series.bad_lines()) + ", \"columns\": {";
  bool is_first = true;
  for (const auto& [name, values] : series.columns()) {
    if (!std::exchange(is_first, false)) out += ", ";
    append_json_string(out, name);
    out += ": [";
    for (std::size_t row = from; row < rows; row = row + stride < rows || row + 1 == rows ? row + stride : rows - 1) {
      if (row > from) out += ',';
      const double value = row < values.size() ? values[row] : kMissing;
      if (std::isfinite(value))
        append_json_number(out, value);
      else
        out += "null";
    }
    out += ']';
  }
  return out + "}}\n";
}

std::string extremes_json(const Series& series) {
  std::string out = "{";
  for (const auto& [name, values] : series.columns()) {
    double least = INFINITY, greatest = -INFINITY;
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      greatest = std::max(greatest, value);
    }
    if (least > greatest) continue;
    out += out.size() > 1 ? ", " : "";
    append_json_string(out, name);
    out += ": [";
    append_json_number(out, least);
    out += ", ";
    append_json_number(out, greatest);
    out += ']';
  }
  return out + "}\n";
}

}  // namespace lockstep::dashboard
