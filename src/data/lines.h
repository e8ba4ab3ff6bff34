#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

/// Where the rows of a text file begin and end, without parsing them.
namespace lockstep::data {

/// What a row is. The rules are those of the parsers that read the rows afterwards.
struct RowRules {
  bool quotes = false;  ///< CSV: a field that begins with `quote` may contain line breaks, and a lone CR ends a row
  char delimiter = ',';
  bool skip_empty = true;    ///< empty lines are not rows
  bool skip_blank = false;   ///< nor lines of spaces and tabs
  char quote = '"';          ///< of CSV, as the next ones; NUL: there is none
  bool double_quote = true;  ///< two quotes within quotes stand for one
  char escape = '\0';        ///< the character after it is plain; NUL: there is none
};

/// Neighbouring rows of a file.
struct RowBlock {
  std::int64_t begin = 0;  ///< bytes
  std::int64_t end = 0;
  std::int64_t rows = 0;
  std::int64_t first_line = 1;
  bool operator==(const RowBlock&) const = default;
};

/// Cuts a file, which comes in pieces of any size, into blocks of whole rows. Lines are counted by LF.
class RowScanner {
 public:
  /// A block ends with the first row that makes it at least `target` bytes. The file begins at the byte `offset` and
  /// the line `line`.
  RowScanner(const RowRules& rules, std::int64_t target, std::int64_t offset = 0, std::int64_t line = 1);

  void feed(std::string_view piece);
  /// After the last piece. Blocks without rows are left out.
  std::vector<RowBlock> finish();
  /// The rows that have ended so far.
  std::int64_t rows() const { return rows_; }
  /// Of the next byte.
  std::int64_t offset() const { return offset_; }
  /// Whether a row begins with the next byte.
  bool at_row_start() const { return at_ == At::row_start && !after_cr_; }
  /// Goes on after what `other` has seen, which began where this one is, at a row start, and counted lines from 0. The
  /// block of this one ends here.
  void append(RowScanner other);

 private:
  enum class At { row_start, field_start, in_field, in_quotes, after_quote };

  void step(char c);
  void end_row();
  void end_block();
  bool is_plain(std::string_view piece) const;
  /// For a piece without quotes and CR: looks only at line breaks.
  void feed_plain(std::string_view piece);

  RowRules rules_;
  std::int64_t target_;
  std::int64_t offset_;  ///< of the next byte
  std::int64_t line_;    ///< of the next byte
  At at_ = At::row_start;
  bool escaped_ = false;   ///< the next character is plain
  bool after_cr_ = false;  ///< a CR has ended a row; an LF that follows is no empty line
  std::int64_t rows_ = 0;
  bool blank_ = true;  ///< the row has had only spaces and tabs
  RowBlock block_;
  std::vector<RowBlock> blocks_;
};

/// The length of the first row of `text` with its line break and any empty lines before it; -1 if it does not end
/// there.
std::int64_t first_row_length(std::string_view text, const RowRules& rules);

/// How many lines of `text` come before its row number `row`, which counts from 0.
std::int64_t lines_before_row(std::string_view text, const RowRules& rules, std::int64_t row);

}  // namespace lockstep::data
