#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/files.h"

namespace parquet {
class FileMetaData;
}

namespace lockstep::data {

/// A Parquet file, whose footer is kept. Any thread may call. Errors are StorageErrors that name the file and, if there
/// is one, the row group.
class ParquetFile {
 public:
  /// Reads the footer.
  explicit ParquetFile(File file);
  ~ParquetFile();

  const File& file() const { return file_; }
  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }
  int groups() const;
  std::int64_t rows(int group) const;
  /// Before compression.
  std::int64_t bytes(int group) const;
  /// "x.parquet, row group 3".
  std::string where(int group) const;

  /// Columns by their numbers in the schema, rising.
  std::shared_ptr<arrow::Table> read(int group, const std::vector<int>& columns) const;
  /// See Source::read_numbers(). Columns are in any order.
  bool read_numbers(int group, const std::vector<int>& columns, std::span<std::byte> into) const;
  /// `count` rows from `first` on. Rows before them are decoded too, unless the piece before was read last. Memory: the
  /// piece, and some pages.
  std::shared_ptr<arrow::Table> read_piece(int group, const std::vector<int>& columns, std::int64_t first,
                                           std::int64_t count) const;
  /// Whether rows of a row group can satisfy a condition that is bound to `schema`, as far as the footer tells.
  bool may_match(int group, const arrow::Schema& schema, const arrow::compute::Expression& condition) const;

 private:
  struct Stream;

  std::vector<int> leaves(const std::vector<int>& columns) const;
  std::unique_ptr<Stream> take_stream(int group, const std::vector<int>& columns, std::int64_t before) const;

  File file_;
  std::shared_ptr<parquet::FileMetaData> footer_;
  std::shared_ptr<arrow::Schema> schema_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Stream>> idle_;  ///< oldest first
};

}  // namespace lockstep::data
