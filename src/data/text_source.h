#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/counted_blocks.h"
#include "data/lines.h"
#include "data/skips.h"
#include "data/source.h"
#include "data/text.h"

namespace lockstep::data {

/// A text file and where its rows are.
struct TextFile {
  std::shared_ptr<const Text> text;
  std::vector<std::string> names{};  ///< CSV: of the columns; empty: the file has no rows at all
  std::int64_t begin = 0;            ///< of the rows
  std::int64_t line = 1;             ///< at `begin`
  std::vector<RowBlock> blocks{};

  std::string shown() const { return text->file().shown(); }
};

/// Finds and indexes text files. `begin_of` says where the rows of a file begin. Broken files are noted in `skips` and
/// left out if the options say so.
std::vector<TextFile> index_text(const std::vector<std::string>& paths, const FileOptions& options,
                                 const std::function<TextFile(const std::shared_ptr<const Text>&)>& begin_of,
                                 const RowRules& rules, std::int64_t block_bytes, Skips& skips);

/// Files of rows that are lines, or can be found like lines.
class TextSource : public Source {
 public:
  std::string description() const override;
  std::string identity() const override;
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override;
  bool is_counted() const override { return rows_.is_complete(); }
  std::size_t blocks() const override { return places_.size(); }
  std::int64_t rows_of_block(std::size_t block) const override;
  Value index() const override;
  void set_rows_of_blocks(const std::vector<std::int64_t>& rows) const override { rows_.set_all(rows); }
  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override;
  bool read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const override;
  std::vector<std::string> files() const override;
  std::int64_t size_bytes() const override;
  Skipped skipped() const override { return skips_->total(); }

 protected:
  /// Some neighbouring rows and their text.
  struct Part {
    const TextFile* file;
    RowBlock rows;
    std::shared_ptr<arrow::Buffer> text;
  };

  TextSource(std::string kind, const RowRules& rules, FileOptions options, std::vector<TextFile> files,
             std::shared_ptr<Skips> skips);

  /// Where an error is: the file and line of row `row` of a part, or all of its lines.
  std::string where(const Part& part, std::optional<std::int64_t> row) const;
  /// What `schema_of` finds at the beginning of the first file, or of every file if schemas are unified.
  std::shared_ptr<arrow::Schema> infer(
      const std::function<std::shared_ptr<arrow::Schema>(const Part&)>& schema_of) const;
  bool empty() const { return places_.empty(); }

  std::shared_ptr<arrow::Schema> schema_;  ///< set by the constructor of the kind
  const RowRules rules_;
  const FileOptions options_;
  std::vector<TextFile> files_;

 private:
  struct TextPlace {
    std::size_t file;
    RowBlock rows;
  };
  using Tables = std::vector<std::shared_ptr<arrow::Table>>;

  /// The rows of a part. Throws StorageError.
  virtual std::shared_ptr<arrow::Table> parse(const Part& part, const std::vector<int>& columns) const = 0;
  /// Whether it is worth trying to read parts as plain numbers.
  virtual bool expects_numbers() const { return false; }
  /// As read_numbers(), of all rows of a part.
  virtual bool parse_numbers(const Part& /*part*/, const std::vector<int>& /*columns*/,
                             std::span<std::byte> /*into*/) const {
    return false;
  }

  Part part(std::size_t block) const;
  /// parse(), with as many rows as there are.
  std::shared_ptr<arrow::Table> parse_all(const Part& part, const std::vector<int>& columns) const;
  /// `use` for all rows of a part, in pieces without the rows for which it throws; those are returned.
  std::vector<std::string> without_errors(const Part& part, const std::function<void(const Part&)>& use) const;
  std::shared_ptr<arrow::Table> read_without_errors(std::size_t block) const;

  const std::string kind_;
  const std::shared_ptr<Skips> skips_;
  std::vector<TextPlace> places_;
  mutable CountedBlocks rows_;
};

/// The number after the last `mark` in a message of a parser.
std::optional<std::int64_t> number_after(std::string_view message, std::string_view mark);

}  // namespace lockstep::data
