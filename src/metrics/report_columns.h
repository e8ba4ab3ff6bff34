#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sys/files.h"

namespace lockstep::metrics {

/// The reports in a result.json by column, one column for every path of keys, joined by `/`, in the order in which they
/// first appear. A million reports take seconds, and a value takes eight bytes, or nine in a column of several kinds.
/// Not thread-safe.
class ReportColumns {
 public:
  enum class Kind : std::uint8_t {
    missing,  ///< the report does not have the key
    null,
    boolean,
    integer,  ///< an std::int64_t
    number,   ///< a double
    text,     ///< an index in texts()
    json      ///< an index in others(): a list, or an integer of more than 64 bits
  };
  struct Column {
    std::string name;
    std::vector<std::uint64_t> cells{};  ///< by report: the bits of the value, or the index
    std::vector<Kind> kinds{};           ///< by report; empty: all are `kind`
    Kind kind = Kind::missing;

    Kind kind_of(std::size_t report) const { return kinds.empty() ? kind : kinds[report]; }
    /// Whether no cell is of another kind than these.
    bool has_only(std::initializer_list<Kind> allowed) const;

   private:
    friend ReportColumns;
    void fill(std::size_t reports);
    void set(std::size_t report, Kind of, std::uint64_t cell);
    void add(Kind of, std::uint64_t cell);

    std::array<std::size_t, 7> of_kind_{};  ///< how many cells are of each kind
    std::size_t same_as_before_ = 0;        ///< the text of the report before
  };

  /// Nothing if there is no such file. Drops half a line at the end, which a killed driver may leave. Throws
  /// StorageError that names the line if another one is not a report. `block` bytes are read at once.
  static ReportColumns read(sys::Files& files, const std::filesystem::path& path, std::size_t block = 1 << 20);

  std::vector<Column>& columns() { return columns_; }
  /// Distinct strings, as JSON: in quotes, and with escapes.
  const std::vector<std::string>& texts() const { return texts_; }
  /// Other values, as JSON.
  const std::vector<std::string>& others() const { return others_; }

 private:
  class Scanner;

  void add_report(std::string_view line);
  void read_object(Scanner& scanner, int depth);
  void read_leaf(Scanner& scanner, Column& column);
  Column& column_of(std::string_view key);
  std::size_t index_of(std::string_view text, std::size_t likely);

  std::vector<Column> columns_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<std::string> texts_, others_;
  std::unordered_map<std::string, std::size_t> by_text_;
  std::size_t reports_ = 0;
  std::vector<std::size_t> order_;  ///< the columns of the previous report, in the order of its keys
  std::size_t position_ = 0;        ///< in order_
  std::string prefix_, name_;       ///< scratch
};

}  // namespace lockstep::metrics
