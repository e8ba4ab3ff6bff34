#include "data/parquet_file.h"

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/caching.h>
#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>

#include <algorithm>

#include "data/numbers.h"
#include "data/parquet_statistics.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

/// Rows that are decoded at a time when a row group is read in pieces.
constexpr std::int64_t kDecodedRows = 1 << 14;
/// Streams that wait to be continued.
constexpr std::size_t kIdleReaders = 2;

/// Whether reads wait for a network, so that few large ones, before they are needed, are better than many.
bool is_remote(const File& file) { return file.system->type_name() != "local"; }

std::unique_ptr<parquet::arrow::FileReader> open_reader(const File& file, std::shared_ptr<parquet::FileMetaData> footer,
                                                        bool in_pieces = false) {
  auto properties = parquet::default_reader_properties();
  auto arrow_properties = parquet::default_arrow_reader_properties();
  arrow_properties.set_pre_buffer(is_remote(file));
  if (in_pieces) {
    properties.enable_buffered_stream();  // pages are read when they are needed
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_batch_size(kDecodedRows);
  }
  auto reader = parquet::ParquetFileReader::Open(file.open(), properties, std::move(footer));
  return value_of(parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(reader), arrow_properties),
                  file.shown());
}

/// Calls into Parquet, some of which throw, for broken files also what the standard library throws.
template <class Call>
auto guarded(const std::string& where, const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(where, error.what());
  }
}

/// Levels that are decoded at a time.
constexpr std::int64_t kLevels = 1 << 14;

/// False if there are nulls.
template <class Type>
bool read_values(parquet::ColumnReader& column, std::int64_t rows, std::byte* into, const std::string& where) {
  auto& typed = static_cast<parquet::TypedColumnReader<Type>&>(column);
  auto* values = reinterpret_cast<typename Type::c_type*>(into);
  std::vector<std::int16_t> levels(kLevels);
  for (std::int64_t done = 0, read = 0; done < rows; done += read) {
    const std::int64_t met =
        typed.ReadBatch(std::min(rows - done, kLevels), levels.data(), nullptr, values + done, &read);
    if (met == 0) fail(where, "holds fewer rows than its footer says");
    if (read != met) return false;
  }
  return true;
}

bool read_numbers_of(parquet::ColumnReader& column, const arrow::DataType& type, std::int64_t rows, std::byte* into,
                     const std::string& where) {
  if (column.descr()->max_repetition_level() > 0 || column.descr()->max_definition_level() > 1) return false;
  const auto physical = column.type();
  if (type.id() == arrow::Type::DOUBLE && physical == parquet::Type::DOUBLE)
    return read_values<parquet::DoubleType>(column, rows, into, where);
  if (type.id() == arrow::Type::FLOAT && physical == parquet::Type::FLOAT)
    return read_values<parquet::FloatType>(column, rows, into, where);
  if (type.id() == arrow::Type::INT64 && physical == parquet::Type::INT64)
    return read_values<parquet::Int64Type>(column, rows, into, where);
  if (type.id() == arrow::Type::INT32 && physical == parquet::Type::INT32)
    return read_values<parquet::Int32Type>(column, rows, into, where);
  return false;
}

}  // namespace

struct ParquetFile::Stream {
  int group;
  std::vector<int> columns;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::unique_ptr<arrow::RecordBatchReader> batches;
  std::int64_t at = 0;                         ///< the first row of `rest`
  std::shared_ptr<arrow::RecordBatch> rest{};  ///< read, and not yet given
};

ParquetFile::ParquetFile(File file) : file_(std::move(file)) {
  guarded(file_.shown(), [&] {
    const auto reader = open_reader(file_, nullptr);
    check(reader->GetSchema(&schema_), file_.shown());
    schema_ = schema_->RemoveMetadata();
    footer_ = reader->parquet_reader()->metadata();
  });
}

ParquetFile::~ParquetFile() = default;

int ParquetFile::groups() const { return footer_->num_row_groups(); }
std::int64_t ParquetFile::rows(int group) const { return footer_->RowGroup(group)->num_rows(); }
std::int64_t ParquetFile::bytes(int group) const { return footer_->RowGroup(group)->total_byte_size(); }

std::string ParquetFile::where(int group) const { return file_.shown() + ", row group " + std::to_string(group); }

std::vector<int> ParquetFile::leaves(const std::vector<int>& columns) const {
  std::vector<int> found;
  for (int leaf = 0; leaf < footer_->schema()->num_columns(); ++leaf) {
    const auto* root = footer_->schema()->GetColumnRoot(leaf);
    const int column = footer_->schema()->group_node()->FieldIndex(*root);
    if (std::binary_search(columns.begin(), columns.end(), column)) found.push_back(leaf);
  }
  return found;
}

std::shared_ptr<arrow::Table> ParquetFile::read(int group, const std::vector<int>& columns) const {
  return guarded(where(group), [&] {
    const auto reader = open_reader(file_, footer_);
    auto table = value_of(reader->ReadRowGroup(group, leaves(columns)), where(group));
    if (table->num_rows() != rows(group) || table->num_columns() != static_cast<int>(columns.size()))
      fail(where(group), "holds other rows than before: it must not change while the data set is used");
    return table;
  });
}

bool ParquetFile::read_numbers(int group, const std::vector<int>& columns, std::span<std::byte> into) const {
  return guarded(where(group), [&] {
    std::vector<int> found;
    for (const int column : columns) {
      const auto of_column = leaves({column});
      if (of_column.size() != 1) return false;
      found.push_back(of_column.front());
    }
    const auto reader = parquet::ParquetFileReader::Open(file_.open(), parquet::default_reader_properties(), footer_);
    if (is_remote(file_))
      reader->PreBuffer({group}, found, arrow::io::default_io_context(), arrow::io::CacheOptions::Defaults());
    const auto row_group = reader->RowGroup(group);
    std::size_t at = 0;
    for (std::size_t n = 0; n < columns.size(); ++n) {
      const auto& type = *schema_->field(columns[n])->type();
      if (!read_numbers_of(*row_group->Column(found[n]), type, rows(group), into.data() + at, where(group)))
        return false;
      at += aligned_bytes(type, rows(group));
    }
    return true;
  });
}

std::unique_ptr<ParquetFile::Stream> ParquetFile::take_stream(int group, const std::vector<int>& columns,
                                                              std::int64_t before) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const auto& each) {
      return each->group == group && each->columns == columns && each->at <= before;
    });
    if (found != idle_.end()) {
      auto stream = std::move(*found);
      idle_.erase(found);
      return stream;
    }
  }
  auto reader = open_reader(file_, footer_, true);
  auto batches = value_of(reader->GetRecordBatchReader(std::vector<int>{group}, leaves(columns)), where(group));
  return std::make_unique<Stream>(Stream{group, columns, std::move(reader), std::move(batches)});
}

std::shared_ptr<arrow::Table> ParquetFile::read_piece(int group, const std::vector<int>& columns, std::int64_t first,
                                                      std::int64_t count) const {
  return guarded(where(group), [&] {
    auto stream = take_stream(group, columns, first);
    std::vector<std::shared_ptr<arrow::RecordBatch>> taken;
    for (std::int64_t left = count; left > 0;) {
      if (!stream->rest) check(stream->batches->ReadNext(&stream->rest), where(group));
      if (!stream->rest) fail(where(group), "holds fewer rows than its footer says");
      const std::int64_t size = stream->rest->num_rows();
      const std::int64_t from = std::clamp<std::int64_t>(first - stream->at, 0, size);
      const std::int64_t length = std::min(size - from, left);
      if (length > 0) taken.push_back(stream->rest->Slice(from, length));
      left -= length;
      stream->at += from + length;
      stream->rest = from + length < size ? stream->rest->Slice(from + length) : nullptr;
    }
    auto table = value_of(arrow::Table::FromRecordBatches(taken), where(group));
    if (table->num_columns() != static_cast<int>(columns.size()))
      fail(where(group), "holds other columns than before: it must not change while the data set is used");
    const std::lock_guard lock(mutex_);
    if (idle_.size() == kIdleReaders) idle_.erase(idle_.begin());
    idle_.push_back(std::move(stream));
    return table;
  });
}

bool ParquetFile::may_match(int group, const arrow::Schema& schema, const arrow::compute::Expression& condition) const {
  return row_group_may_match(*footer_, group, schema, condition);
}

}  // namespace lockstep::data
