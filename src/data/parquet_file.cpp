#include "data/parquet_file.h"

#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>

#include <algorithm>

#include "data/parquet_statistics.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

/// Rows that are decoded at a time when a row group is read in pieces.
constexpr std::int64_t kDecodedRows = 1 << 14;
/// Streams that wait to be continued.
constexpr std::size_t kIdleReaders = 2;

std::unique_ptr<parquet::arrow::FileReader> open_reader(const File& file, std::shared_ptr<parquet::FileMetaData> footer,
                                                        bool in_pieces = false) {
  auto properties = parquet::default_reader_properties();
  auto arrow_properties = parquet::default_arrow_reader_properties();
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
