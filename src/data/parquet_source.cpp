#include <arrow/compute/expression.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <numeric>

#include "data/all_blocks.h"
#include "data/counted_blocks.h"
#include "data/parquet_file.h"
#include "data/schemas.h"
#include "data/skips.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

/// A row group, or a part of its rows.
struct Piece {
  std::size_t file = 0;
  int group = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  bool whole = true;
};

using ParquetFiles = std::vector<std::unique_ptr<const ParquetFile>>;

class ParquetSource final : public Source {
 public:
  ParquetSource(ParquetFiles files, const ParquetOptions& options, std::shared_ptr<Skips> skips)
      : files_(std::move(files)), options_(options.files), skips_(std::move(skips)) {
    for (const auto& file : files_) add_schema(*file);
    if (!schema_) schema_ = arrow::schema({});
    for (std::size_t n = 0; n < files_.size(); ++n)
      for (int group = 0; group < files_[n]->groups(); ++group) add_group(n, group, options.piece_bytes);
    if (options_.skip_errors) return;
    std::vector<std::int64_t> rows;
    for (const Piece& piece : pieces_) rows.push_back(piece.rows);
    rows_.set_all(std::move(rows));
  }

  std::string description() const override {
    return "read_parquet: " + counted(files_.size(), "file") + ", " + counted(groups_, "row group");
  }
  std::string identity() const override {
    std::vector<File> files;
    for (const auto& each : files_) files.push_back(each->file());
    return "parquet" + identity_of(files);
  }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  std::vector<std::string> files() const override {
    std::vector<std::string> paths;
    for (const auto& each : files_) paths.push_back(each->file().shown());
    return paths;
  }
  std::int64_t size_bytes() const override {
    std::int64_t sum = 0;
    for (const auto& each : files_) sum += each->file().size;
    return sum;
  }
  Skipped skipped() const override { return skips_->total(); }

  const std::vector<std::int64_t>& rows_of_blocks() const override {
    return rows_.all("read_parquet", pieces_.size(), [this](std::size_t block) { return rows_of_block(block); });
  }
  bool is_counted() const override { return rows_.is_complete(); }
  std::size_t blocks() const override { return pieces_.size(); }
  std::int64_t rows_of_block(std::size_t block) const override {
    const auto known = rows_.rows(block);
    return known ? *known : read_all(block)->num_rows();
  }
  void set_rows_of_blocks(const std::vector<std::int64_t>& rows) const override { rows_.set_all(rows); }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    // Whether a row group is broken must not depend on the columns.
    if (rows_.rows(block) == pieces_[block].rows) return read_columns(block, columns);
    return value_of(read_all(block)->SelectColumns(columns), "read_parquet");
  }

  bool read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const override {
    const Piece& piece = pieces_[block];
    if (!piece.whole || rows_.rows(block) != piece.rows) return false;
    const ParquetFile& file = *files_[piece.file];
    // Without nulls that stand for columns, and without conversions.
    if (options_.unify_schemas && !file.schema()->Equals(*schema_, false)) return false;
    return file.read_numbers(piece.group, columns, room.bytes);
  }

  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    const auto bound = filter.IsBound() ? arrow::Result<arrow::compute::Expression>(filter) : filter.Bind(*schema_);
    if (!bound.ok()) return {};
    std::vector<bool> matching;
    for (const Piece& piece : pieces_)  // pieces of a row group follow each other
      matching.push_back(piece.first > 0 ? matching.back()
                                         : files_[piece.file]->may_match(piece.group, *schema_, *bound));
    return matching;
  }

 private:
  void add_schema(const ParquetFile& file) {
    const std::string shown = file.file().shown(), first = files_.front()->file().shown();
    if (!schema_)
      schema_ = file.schema();
    else if (options_.unify_schemas)
      schema_ = merged(*schema_, first, *file.schema(), shown);
    else
      check_same_schema(*schema_, first, *file.schema(), shown);
  }

  void add_group(std::size_t file, int group, std::int64_t piece_bytes) {
    const std::int64_t rows = files_[file]->rows(group), bytes = files_[file]->bytes(group);
    if (rows == 0) return;
    ++groups_;
    // Somewhat larger ones are not worth the trouble.
    const std::int64_t count = bytes < 2 * piece_bytes ? 1 : std::min(bytes / piece_bytes, rows);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t first = rows * n / count;
      pieces_.push_back({file, group, first, rows * (n + 1) / count - first, count == 1});
    }
  }

  std::shared_ptr<arrow::Table> read_columns(std::size_t block, const std::vector<int>& columns) const {
    const Piece& piece = pieces_[block];
    const ParquetFile& file = *files_[piece.file];
    const std::string where = file.where(piece.group);
    // Files may lack columns, or have them in another order.
    std::vector<int> in_file, wanted;
    for (const int column : columns)
      in_file.push_back(options_.unify_schemas ? file.schema()->GetFieldIndex(schema_->field(column)->name()) : column);
    for (const int column : in_file)
      if (column >= 0 && std::find(wanted.begin(), wanted.end(), column) == wanted.end()) wanted.push_back(column);
    std::sort(wanted.begin(), wanted.end());
    const auto table =
        piece.whole ? file.read(piece.group, wanted) : file.read_piece(piece.group, wanted, piece.first, piece.rows);
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::ChunkedArray>> arrays;
    for (std::size_t n = 0; n < columns.size(); ++n) {
      const auto& field = schema_->field(columns[n]);
      const auto at = std::find(wanted.begin(), wanted.end(), in_file[n]) - wanted.begin();
      fields.push_back(field);
      arrays.push_back(in_file[n] < 0 ? nulls(field->type(), piece.rows)
                                      : converted(table->column(static_cast<int>(at)), field->type(), where));
    }
    return arrow::Table::Make(arrow::schema(std::move(fields)), std::move(arrays), piece.rows);
  }

  /// Without rows, if they cannot be read.
  std::shared_ptr<arrow::Table> read_all(std::size_t block) const {
    std::vector<int> all(static_cast<std::size_t>(schema_->num_fields()));
    std::iota(all.begin(), all.end(), 0);
    std::shared_ptr<arrow::Table> table;
    try {
      table = read_columns(block, all);
    } catch (const StorageError& error) {
      skips_->add(static_cast<std::int64_t>(block), 1, {error.what()});
      table = value_of(arrow::Table::MakeEmpty(schema_), "an empty block");
    }
    rows_.set(block, table->num_rows());
    return table;
  }

  const ParquetFiles files_;
  const FileOptions options_;
  const std::shared_ptr<Skips> skips_;
  std::shared_ptr<arrow::Schema> schema_;
  std::size_t groups_ = 0;
  std::vector<Piece> pieces_;
  mutable CountedBlocks rows_;
};

}  // namespace

std::shared_ptr<Source> open_parquet(const std::vector<std::string>& paths, const ParquetOptions& options) {
  const auto found = find_files(paths, options.files);
  struct Opened {
    std::unique_ptr<const ParquetFile> file;
    std::string error;
  };
  const auto open = [&](std::size_t n) -> Opened {
    try {
      return {std::make_unique<const ParquetFile>(found[n]), ""};
    } catch (const StorageError& error) {
      return {nullptr, error.what()};
    }
  };
  auto skips = std::make_shared<Skips>();
  ParquetFiles files;
  std::int64_t broken = 0;
  for_all_blocks("open files", found.size(), open, [&](Opened opened) {
    if (opened.file) return files.push_back(std::move(opened.file));
    if (!options.files.skip_errors) throw StorageError(opened.error);
    skips->add(--broken, 1, {opened.error});  // below the numbers of blocks
  });
  return std::make_shared<ParquetSource>(std::move(files), options, std::move(skips));
}

}  // namespace lockstep::data
