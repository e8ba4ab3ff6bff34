#include "data/gather.h"

#include <arrow/array/array_base.h>
#include <arrow/array/array_primitive.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/compute/api_vector.h>
#include <arrow/datum.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>

#include <algorithm>
#include <utility>

#include "data/status.h"

namespace lockstep::data {
namespace {

using Tables = std::vector<std::shared_ptr<arrow::Table>>;

constexpr std::int64_t kGatheredAlignment = 64;

std::int64_t aligned(std::int64_t size) {
  return (size + kGatheredAlignment - 1) / kGatheredAlignment * kGatheredAlignment;
}

/// Where each row lies.
struct Places {
  std::vector<std::uint32_t> tables{};  ///< empty: all in the first one
  std::vector<std::int64_t> rows{};     ///< within the tables; empty: as they were given
};

Places places_of(const Tables& tables, std::span<const std::int64_t> rows) {
  if (tables.size() == 1) return {};
  struct Place {
    std::uint32_t table;
    std::int64_t row;
  };
  std::vector<Place> all;
  for (std::uint32_t table = 0; table < tables.size(); ++table)
    for (std::int64_t row = 0; row < tables[table]->num_rows(); ++row) all.push_back({table, row});
  Places places;
  places.tables.reserve(rows.size());
  places.rows.reserve(rows.size());
  for (const std::int64_t row : rows) {
    const Place& place = all[static_cast<std::size_t>(row)];
    places.tables.push_back(place.table);
    places.rows.push_back(place.row);
  }
  return places;
}

/// The values of a column in each table; empty if they are not just bytes of 1, 2, 4 or 8 per row.
std::vector<const std::uint8_t*> plain_values(const Tables& tables, int column) {
  std::vector<const std::uint8_t*> values;
  const auto& type = *tables.front()->schema()->field(column)->type();
  if (!arrow::is_primitive(type.id()) || type.id() == arrow::Type::BOOL || type.byte_width() > 8) return values;
  for (const auto& table : tables) {
    const arrow::ChunkedArray& chunks = *table->column(column);
    if (chunks.num_chunks() != 1 || chunks.null_count() > 0) return {};
    const arrow::ArrayData& data = *chunks.chunk(0)->data();
    values.push_back(data.buffers[1] ? data.buffers[1]->data() + data.offset * type.byte_width() : nullptr);
  }
  return values;
}

template <class Word>
void copy(const std::vector<const std::uint8_t*>& values, const Places& places, std::span<const std::int64_t> rows,
          std::uint8_t* into) {
  auto* out = reinterpret_cast<Word*>(into);
  const auto from = [&](std::size_t table) { return reinterpret_cast<const Word*>(values[table]); };
  if (places.tables.empty()) {
    const Word* only = from(0);
    for (std::size_t n = 0; n < rows.size(); ++n) out[n] = only[rows[n]];
    return;
  }
  for (std::size_t n = 0; n < rows.size(); ++n) out[n] = from(places.tables[n])[places.rows[n]];
}

void copy(int width, const std::vector<const std::uint8_t*>& values, const Places& places,
          std::span<const std::int64_t> rows, std::uint8_t* into) {
  switch (width) {
    case 1:
      return copy<std::uint8_t>(values, places, rows, into);
    case 2:
      return copy<std::uint16_t>(values, places, rows, into);
    case 4:
      return copy<std::uint32_t>(values, places, rows, into);
    default:
      return copy<std::uint64_t>(values, places, rows, into);
  }
}

/// Any columns, by Arrow.
std::shared_ptr<arrow::RecordBatch> taken(const Tables& tables, const std::vector<int>& columns,
                                          std::span<const std::int64_t> rows) {
  Tables selected;
  for (const auto& table : tables) selected.push_back(value_of(table->SelectColumns(columns), "a window"));
  const auto all = value_of(arrow::ConcatenateTables(selected), "a window");
  const auto batch = value_of(all->CombineChunksToBatch(), "a window");
  const auto indices = std::make_shared<arrow::Int64Array>(
      static_cast<std::int64_t>(rows.size()),
      std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(rows.data()),
                                      static_cast<std::int64_t>(rows.size_bytes())));
  const auto found = arrow::compute::Take(batch, indices, arrow::compute::TakeOptions::NoBoundsCheck());
  return value_of(found, "a window").record_batch();
}

}  // namespace

/// A piece, as long as anybody uses it.
class ReusedMemory::Lent final : public arrow::MutableBuffer {
 public:
  Lent(std::weak_ptr<ReusedMemory> owner, std::unique_ptr<arrow::Buffer> piece, std::int64_t size)
      : arrow::MutableBuffer(piece->mutable_data(), size), owner_(std::move(owner)), piece_(std::move(piece)) {}
  ~Lent() override {
    if (const auto owner = owner_.lock()) owner->give_back(std::move(piece_));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  const std::weak_ptr<ReusedMemory> owner_;
  std::unique_ptr<arrow::Buffer> piece_;
};

std::shared_ptr<arrow::Buffer> ReusedMemory::get(std::int64_t size) {
  std::unique_ptr<arrow::Buffer> piece;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& each) { return each->size() >= size && each->size() / 2 <= size; };
    if (const auto found = std::ranges::find_if(unused_, fits); found != unused_.end()) {
      piece = std::move(*found);
      unused_.erase(found);
    }
  }
  if (!piece) piece = value_of(arrow::AllocateBuffer(size), "a window");
  return std::make_shared<Lent>(weak_from_this(), std::move(piece), size);
}

void ReusedMemory::give_back(std::unique_ptr<arrow::Buffer> piece) {
  const std::lock_guard lock(mutex_);
  if (unused_.size() == count_ && count_ > 0) unused_.erase(unused_.begin());
  if (unused_.size() < count_) unused_.push_back(std::move(piece));
}

std::shared_ptr<arrow::RecordBatch> gathered(const Tables& tables, std::span<const std::int64_t> rows,
                                             ReusedMemory& memory) {
  const auto& schema = tables.front()->schema();
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<std::vector<const std::uint8_t*>> values;
  std::vector<int> others;
  std::int64_t size = 0;
  for (int column = 0; column < schema->num_fields(); ++column) {
    values.push_back(plain_values(tables, column));
    if (values.back().empty())
      others.push_back(column);
    else
      size += aligned(count * schema->field(column)->type()->byte_width());
  }
  std::shared_ptr<arrow::RecordBatch> rest;
  if (!others.empty() || schema->num_fields() == 0) rest = taken(tables, others, rows);
  if (size == 0 && rest) return rest;
  const Places places = places_of(tables, rows);
  const auto buffer = memory.get(size);
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  std::int64_t at = 0;
  int other = 0;
  for (int column = 0; column < schema->num_fields(); ++column) {
    const auto& from = values[static_cast<std::size_t>(column)];
    if (from.empty()) {
      arrays.push_back(rest->column(other++));
      continue;
    }
    const auto& type = schema->field(column)->type();
    const std::int64_t bytes = count * type->byte_width();
    copy(type->byte_width(), from, places, places.rows.empty() ? rows : std::span(places.rows),
         buffer->mutable_data() + at);
    arrays.push_back(
        arrow::MakeArray(arrow::ArrayData::Make(type, count, {nullptr, arrow::SliceBuffer(buffer, at, bytes)}, 0)));
    at += aligned(bytes);
  }
  return arrow::RecordBatch::Make(schema, count, std::move(arrays));
}

}  // namespace lockstep::data
