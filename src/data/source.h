#pragma once

#include <arrow/type_fwd.h>
#include <lockstep/value.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/meter.h"

struct ArrowArrayStream;
namespace arrow::compute {
class Expression;
}
namespace arrow::csv {
struct ConvertOptions;
}
namespace arrow::fs {
class FileSystem;
}

namespace lockstep::data {

/// What was left out instead of failing.
struct Skipped {
  std::int64_t count = 0;             ///< files, row groups or lines
  std::vector<std::string> places{};  ///< where, and why, of the first ones
};

/// Memory for the rows of a block.
struct Room {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> hold{};  ///< keeps the memory; null: nothing does after the call
};

/// Where rows come from: a list of blocks that are read independently of each other. Its index, which knows the rows of
/// every block, is made when it is opened; rows are read when they are needed. A step of a plan is a source too, which
/// reads other sources (steps.h): it may have to read rows to know its columns or the rows of its blocks. Any thread
/// may call.
class Source {
 public:
  virtual ~Source() = default;

  /// "read_csv: 3 files", for people.
  virtual std::string description() const = 0;
  /// Differs between sources whose rows or blocks differ, as far as can be told without reading the rows.
  virtual std::string identity() const = 0;
  /// Of all columns.
  virtual const std::shared_ptr<arrow::Schema>& schema() const = 0;
  /// The rows of each block.
  virtual const std::vector<std::int64_t>& rows_of_blocks() const = 0;
  /// Some columns of a block, by their numbers in the schema, in this order. Throws StorageError that names the file
  /// and the row group or line.
  virtual std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const = 0;
  /// Reads columns of numbers without nulls straight into memory: one after the other, each aligned (numbers.h). False
  /// if that is not possible for this block; the memory then holds anything, and may still be used by whoever has a
  /// part of `hold`. Throws as read() does.
  virtual bool read_numbers(std::size_t /*block*/, const std::vector<int>& /*columns*/, const Room& /*room*/) const {
    return false;
  }
  /// Whether the rows lie in memory that belongs to the user, and must not be changed.
  virtual bool is_borrowed() const { return false; }

  /// One line per step, for people; the last is the description of this one.
  virtual std::vector<std::string> plan() const { return {description()}; }
  /// The paths of the files that are read.
  virtual std::vector<std::string> files() const { return {}; }
  /// About how many bytes the rows take, as far as is known without reading them: of files as they are stored.
  virtual std::int64_t size_bytes() const { return 0; }
  /// So far.
  virtual Skipped skipped() const { return {}; }
  /// Whether schema() reads no rows.
  virtual bool knows_schema() const { return true; }
  /// Whether rows_of_blocks() reads no rows.
  virtual bool is_counted() const { return true; }
  /// The number of blocks. Reads rows only if all rows together make up the blocks, as of a sort.
  virtual std::size_t blocks() const { return rows_of_blocks().size(); }
  /// The rows of one block. Reads at most the blocks up to this one.
  virtual std::int64_t rows_of_block(std::size_t block) const { return rows_of_blocks()[block]; }
  /// What was found out by reading whole files when this was opened: FileOptions::index of another process. Null if
  /// nothing was.
  virtual Value index() const { return {}; }
  /// Takes over the rows of blocks that another process has counted.
  virtual void set_rows_of_blocks(const std::vector<std::int64_t>& /*rows*/) const {}
  /// Does what has to be done with all rows before a block can be read, as a sort. Reading would do it, too.
  virtual void prepare() const {}
  /// For each block whether it may have rows for which `filter` is true: the others need not be read. Nothing is read
  /// to find out. Empty: every block may.
  virtual std::vector<bool> may_match(const arrow::compute::Expression& /*filter*/) const { return {}; }
  /// The sources that it reads.
  virtual std::vector<const Source*> inputs() const { return {}; }
  /// What measured() has seen.
  Meter& meter() const { return meter_; }

 private:
  mutable Meter meter_;
};

/// Text files are cut into blocks of about this many bytes. Smaller ones are shuffled better, larger ones read faster.
inline constexpr std::int64_t kTextBlock = 1 << 20;
/// Larger row groups are read in pieces of about this many bytes, as they are before compression.
inline constexpr std::int64_t kParquetPiece = 64 << 20;

/// What is the same for all kinds of files.
struct FileOptions {
  std::shared_ptr<arrow::fs::FileSystem> system{};  ///< nothing: what the path says
  bool skip_errors = false;                         ///< broken files, row groups and lines are left out
  bool unify_schemas = false;  ///< columns that a file lacks become nulls, and types widen; else all must be equal
  bool ignore_missing_paths = false;      ///< paths that name no file are left out, if others do
  std::vector<std::string> extensions{};  ///< ".npy": only such files of directories; empty: all
  Value index{};  ///< of the same files, so that text need not be read to find its rows; null: there is none
};

struct CsvOptions {
  char delimiter = ',';
  std::vector<std::string> column_names{};  ///< of files without a line of names
  /// Types of some columns by name; nothing: inferred from the beginning of the first file.
  std::shared_ptr<arrow::Schema> types{};
  std::int64_t block_bytes = kTextBlock;
  FileOptions files{};
  char quote = '"';             ///< NUL: quotes are plain
  bool double_quote = true;     ///< two quotes within quotes stand for one
  char escape = '\0';           ///< the next character is plain; NUL: none is
  bool skip_empty = true;       ///< empty lines are not rows
  bool number_names = false;    ///< without names: f0, f1, ...
  std::int64_t skip_lines = 0;  ///< at the beginning, before the names
  std::int64_t skip_rows = 0;   ///< after the names
  /// How values are converted. Its columns are ignored; nothing: Arrow's defaults.
  std::shared_ptr<arrow::csv::ConvertOptions> convert{};
};

struct JsonOptions {
  std::shared_ptr<arrow::Schema> schema{};  ///< nothing: inferred from the beginning of the first file
  std::int64_t block_bytes = kTextBlock;
  FileOptions files{};
};

struct TextOptions {
  bool drop_empty_lines = true;
  std::int64_t block_bytes = kTextBlock;
  FileOptions files{};
};

struct ParquetOptions {
  FileOptions files{};
  std::int64_t piece_bytes = kParquetPiece;
};

struct BinaryOptions {
  bool include_paths = false;
  FileOptions files{};
};

/// Blocks are row groups, or pieces of large ones. All files must have the same columns unless schemas are unified.
std::shared_ptr<Source> open_parquet(const std::vector<std::string>& paths, const ParquetOptions& options = {});
/// Blocks are ranges of bytes; of compressed files, large ones. Opening reads every file once, to find the rows.
std::shared_ptr<Source> open_csv(const std::vector<std::string>& paths, const CsvOptions& options);
/// One JSON object per line.
std::shared_ptr<Source> open_json(const std::vector<std::string>& paths, const JsonOptions& options);
/// One column `text`; each line is a row.
std::shared_ptr<Source> open_text(const std::vector<std::string>& paths, const TextOptions& options);
/// One column `bytes`, and perhaps `path`; each file is a row.
std::shared_ptr<Source> open_binary(const std::vector<std::string>& paths, const BinaryOptions& options);
/// Takes the stream over. `name` is for people.
std::shared_ptr<Source> open_table(ArrowArrayStream* stream, const std::string& name);
/// One column `id` with 0 ... count - 1.
std::shared_ptr<Source> open_range(std::int64_t count);

}  // namespace lockstep::data
