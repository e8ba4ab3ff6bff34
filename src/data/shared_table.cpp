#include "data/shared_table.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <utility>

#include "data/status.h"
#include "data/watch.h"

namespace lockstep::data {
namespace {

class PinnedBuffer final : public arrow::Buffer {
 public:
  explicit PinnedBuffer(SharedCache::Pinned pinned)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(pinned.bytes.data()),
                      static_cast<std::int64_t>(pinned.bytes.size())),
        hold_(std::move(pinned.hold)) {}

 private:
  std::shared_ptr<const void> hold_;
};

arrow::Status write_stream(const arrow::Table& table, arrow::io::OutputStream* sink) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.alignment = 64;
  options.use_threads = false;
  ARROW_ASSIGN_OR_RAISE(auto writer, arrow::ipc::MakeStreamWriter(sink, table.schema(), options));
  ARROW_RETURN_NOT_OK(writer->WriteTable(table));
  return writer->Close();
}

}  // namespace

std::shared_ptr<arrow::Buffer> buffer_of(SharedCache::Pinned pinned) {
  return std::make_shared<PinnedBuffer>(std::move(pinned));
}

std::shared_ptr<arrow::Table> read_table(std::shared_ptr<arrow::Buffer> stream) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  auto bytes = std::make_shared<arrow::io::BufferReader>(std::move(stream));
  const std::string where = "rows of another rank";
  return value_of(value_of(arrow::ipc::RecordBatchStreamReader::Open(std::move(bytes), options), where)->ToTable(),
                  where);
}

std::span<std::byte> write_table(SharedCache& cache, std::uint64_t key, const arrow::Table& table, std::size_t head,
                                 bool evict) {
  arrow::io::MockOutputStream counted;
  if (!write_stream(table, &counted).ok()) return {};
  const auto size = static_cast<std::size_t>(counted.GetExtentBytesWritten());
  const auto room = cache.room(key, head + size, evict);
  if (room.empty()) return {};
  arrow::io::FixedSizeBufferWriter sink(std::make_shared<arrow::MutableBuffer>(
      reinterpret_cast<std::uint8_t*>(room.data() + head), static_cast<std::int64_t>(size)));
  if (!write_stream(table, &sink).ok()) return {};
  return room;
}

std::shared_ptr<arrow::Table> SharedTable::get(const std::string& step,
                                               const std::function<std::shared_ptr<arrow::Table>()>& make) const {
  for (;;) {
    const std::uint32_t seen = cache_->changes();
    SharedCache::Pinned pinned;
    const auto found = cache_->look(key_, pinned);
    if (found == SharedCache::Look::ready) return read_table(buffer_of(std::move(pinned)));
    if (found == SharedCache::Look::full) return make();
    if (found == SharedCache::Look::claimed) break;
    if (Watch* const watch = Watch::current()) watch->tick(step, 0, 1);
    cache_->wait(seen, std::chrono::milliseconds(100));
  }
  const auto abandon = [this](const void*) { cache_->abandon(key_); };
  std::unique_ptr<const SharedTable, decltype(abandon)> claim(this, abandon);
  auto table = make();
  const auto room = write_table(*cache_, key_, *table, 0, false);
  if (room.empty()) return table;
  // Arrow does not know every type that Python has registered.
  const auto written = read_table(arrow::Buffer::Wrap(room.data(), room.size()));
  if (!written->schema()->Equals(*table->schema())) return table;
  auto pinned = cache_->publish(key_);
  claim.release();
  return pinned.hold ? read_table(buffer_of(std::move(pinned))) : table;
}

}  // namespace lockstep::data
