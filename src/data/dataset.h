#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/source.h"
#include "data/steps.h"

namespace lockstep::data {

/// A source, with what is done to its rows. A plan: nothing is read before it is needed. Immutable; copies share the
/// source. Any thread may call. Functions that say "may read" read rows if a step of the plan makes that necessary.
class Dataset {
 public:
  explicit Dataset(SourcePointer source) : source_(std::move(source)) {}

  const SourcePointer& source() const { return source_; }
  /// May read.
  std::int64_t count() const;
  const std::shared_ptr<arrow::Schema>& schema() const { return source_->schema(); }
  const std::vector<std::int64_t>& rows_of_blocks() const { return source_->rows_of_blocks(); }
  bool is_borrowed() const { return source_->is_borrowed(); }
  /// 16 hexadecimal digits that differ between data with other rows or blocks. A choice of columns does not matter: the
  /// order does not depend on it. May read.
  std::string fingerprint() const;
  /// One line per step, for people.
  std::vector<std::string> plan() const { return source_->plan(); }

  /// Only these columns, in this order: others are not read. Throws ConfigError for unknown or repeated names; later,
  /// if the columns are not known yet. So do the next two.
  Dataset select_columns(const std::vector<std::string>& names) const;
  /// All columns but these.
  Dataset drop_columns(const std::vector<std::string>& names) const;
  /// Pairs of an old and a new name.
  Dataset rename_columns(const std::vector<std::pair<std::string, std::string>>& names) const;
  /// The first `count` rows. Throws ConfigError if it is below 0.
  Dataset limit(std::int64_t count) const;

  /// The rows of a block, with schema(). Throws StorageError that names the file and the row group or line.
  std::shared_ptr<arrow::Table> read(std::size_t block) const;
  /// The same straight into memory, if all columns are numbers without nulls: see Source::read_numbers().
  bool read_numbers(std::size_t block, const Room& room) const;

 private:
  SourcePointer source_;
};

}  // namespace lockstep::data
