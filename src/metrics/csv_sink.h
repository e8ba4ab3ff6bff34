#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metrics/append_file.h"
#include "metrics/sink.h"

namespace lockstep::metrics {

/// progress.csv: a table with one row per result and one column for every key of any result, nested keys joined by `/`
/// (RFC 4180 quoting, lines end in a line feed). Missing and null values are empty cells, an empty string is `""`,
/// lists are JSON. Keys with the same joined name share a column, which gets the later value (result.json has both).
///
/// A new key widens the table: at the next flush the file is rewritten with longer rows and renamed into place, so that
/// readers see the old or the new table. As long as the keys stay the same, rows are only appended. start() continues
/// an existing table; an incomplete last row is cut off.
class CsvSink final : public ReportSink {
 public:
  explicit CsvSink(const std::filesystem::path& directory, sys::Files& files = sys::files())
      : file_(files, directory / "progress.csv") {}
  ~CsvSink() override;

  void start(const Value& config) override;
  void write(const Value& result, long step) override;
  void flush() override;
  void close() override;

 private:
  std::size_t column_of(std::string_view key, std::size_t position);
  void append_header(std::string& out) const;
  void begin();  ///< puts the first header before the rows in the buffer
  void widen();

  AppendFile file_;  ///< its buffer may hold rows from before the table was widened
  std::vector<std::string> columns_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t columns_in_file_ = 0;
  std::vector<std::size_t> order_;   ///< the columns of the previous row, in the order of its keys
  std::vector<const Value*> cells_;  ///< scratch: the current row by column
  std::string prefix_;               ///< scratch
};

/// Removes the last row of a table that no sink has open.
void cut_last_row(sys::Files& files, const std::filesystem::path& path);

}  // namespace lockstep::metrics
