#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metrics/append_file.h"
#include "metrics/sink.h"

namespace lockstep::metrics {

/// progress.csv: a table with one row a result and a column for every key that any result had, nested keys joined by
/// `/` (RFC 4180 quoting, lines end in a line feed). Missing and null are empty cells, an empty string is `""`, lists
/// are JSON. Keys that come to the same name share its column, where the later value stays (result.json has both).
///
/// A new key widens the table: at the next flush the file is written anew with longer rows and renamed into place, so
/// that readers see the old or the new table; as long as the keys stay the same, rows are only appended. start() goes
/// on with the table that is there; a last row without its end is cut off.
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
  void widen();

  AppendFile file_;  ///< its buffer holds rows that may be shorter than the table is wide now
  std::vector<std::string> columns_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t columns_in_file_ = 0;
  std::vector<std::size_t> order_;   ///< the columns of the row before, in the order of its keys
  std::vector<const Value*> cells_;  ///< scratch: the current row by column
  std::string prefix_;               ///< scratch
};

}  // namespace lockstep::metrics
