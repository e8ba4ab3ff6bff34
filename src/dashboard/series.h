#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sys/beneath_files.h"

namespace lockstep::dashboard {

/// Calls visit(name, number) for each number and boolean in one line of result.json, a JSON object; names of nested
/// dicts are joined by `/`. Lists, texts and the top-level keys in `skip` are passed over. Stops at the first thing
/// that is not JSON, or is nested deeper than 32, and returns false.
bool for_each_number(std::string_view line, const std::vector<std::string_view>& skip,
                     const std::function<void(std::string_view name, double number)>& visit);

/// The reports in a result.json, as columns of numbers. Reads only what was appended since the last update.
class Series {
 public:
  explicit Series(std::filesystem::path file) : file_(std::move(file)) {}

  /// Reads complete new lines. If the file was replaced or became shorter, begins anew with another generation. A file
  /// that does not exist has no rows.
  void update(sys::Files& files);

  struct Column {
    std::string name;
    std::vector<double> values;  ///< NaN: not reported; may be shorter than rows()
  };
  const std::vector<Column>& columns() const { return columns_; }
  std::size_t rows() const { return rows_; }
  int generation() const { return generation_; }
  /// Lines that could not be read.
  std::size_t bad_lines() const { return bad_lines_; }
  std::size_t memory() const;

 private:
  void read(sys::OpenFile& file);
  void add_line(std::string_view line);
  Column& column(std::string_view name);

  std::filesystem::path file_;
  std::uint64_t device_ = 0, inode_ = 0, offset_ = 0;
  int generation_ = 0;
  std::size_t rows_ = 0, bad_lines_ = 0;
  std::string rest_;  ///< the last line, incomplete
  std::vector<Column> columns_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t guess_ = 0;  ///< the column that probably comes next
};

/// The series of the runs that were asked for last, within a limit of memory. Any thread may call.
class SeriesCache {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;

  explicit SeriesCache(sys::Files& files, std::size_t most_bytes = kMostBytes) : files_(files), most_(most_bytes) {}

  /// Calls read() with the up-to-date series of this result.json; others may not use it meanwhile.
  void with(const std::filesystem::path& file, const std::function<void(const Series& series)>& read);

 private:
  struct Entry {
    explicit Entry(const std::filesystem::path& file) : series(file) {}
    std::mutex mutex;
    Series series;
    std::size_t memory = 0;
    std::uint64_t used = 0;
  };
  void drop_oldest();

  sys::Files& files_;
  const std::size_t most_;
  std::mutex mutex_;  ///< guards what follows, and the numbers in entries
  std::map<std::filesystem::path, std::shared_ptr<Entry>> entries_;
  std::uint64_t clock_ = 0;
};

/// Rows `from` and later as JSON: {"generation", "rows", "stride", "first", "columns": {name: [number or null]}}. Of
/// more than `most` rows every stride-th is given, and the last. Another generation than the client's begins at 0.
std::string series_json(const Series& series, std::size_t from, int generation, std::size_t most = 20'000);

/// The least and the greatest finite value of each column: {name: [min, max]}.
std::string extremes_json(const Series& series);

}  // namespace lockstep::dashboard
