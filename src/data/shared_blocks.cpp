#include "data/shared_blocks.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

constexpr std::chrono::seconds kPatience{10};

/// FNV-1a: the same in every process.
std::uint64_t hash(std::string_view text, std::uint64_t start = 0xcbf2'9ce4'8422'2325) {
  for (const char c : text) start = (start ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return start;
}

/// Memory of an entry, which stays pinned as long as anything points into it.
class PinnedBuffer final : public arrow::Buffer {
 public:
  explicit PinnedBuffer(SharedCache::Pinned pinned)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(pinned.bytes.data()),
                      static_cast<std::int64_t>(pinned.bytes.size())),
        hold_(std::move(pinned.hold)) {}

 private:
  std::shared_ptr<const void> hold_;
};

arrow::Status write(const arrow::RecordBatch& batch, arrow::io::OutputStream* sink) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.alignment = 64;
  options.use_threads = false;
  ARROW_ASSIGN_OR_RAISE(auto writer, arrow::ipc::MakeStreamWriter(sink, batch.schema(), options));
  ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(batch));
  return writer->Close();
}

arrow::Result<std::shared_ptr<arrow::Table>> table_in(SharedCache::Pinned pinned) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  auto stream = std::make_shared<arrow::io::BufferReader>(std::make_shared<PinnedBuffer>(std::move(pinned)));
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(std::move(stream), options));
  return reader->ToTable();
}

}  // namespace

SharedBlocks::SharedBlocks(std::shared_ptr<SharedCache> cache, const std::string& identity)
    : cache_(std::move(cache)), identity_(hash(identity)) {}

std::uint64_t SharedBlocks::key(std::size_t block) const { return hash(std::to_string(block), identity_); }

std::shared_ptr<arrow::Table> SharedBlocks::get(std::size_t block, const Read& read,
                                                std::span<const std::size_t> next) {
  const Instant deadline = now() + kPatience;
  for (;;) {
    const std::uint32_t seen = cache_->changes();
    SharedCache::Pinned pinned;
    switch (cache_->look(key(block), pinned)) {
      case SharedCache::Look::ready:
        return value_of(table_in(std::move(pinned)), "a block of another rank");
      case SharedCache::Look::claimed:
        return make(block, read, true);
      case SharedCache::Look::full:
        return read(block);
      case SharedCache::Look::busy:
        break;
    }
    if (now() >= deadline) return read(block);
    if (!help(read, next)) cache_->wait(seen, std::chrono::milliseconds(100));
  }
}

bool SharedBlocks::help(const Read& read, std::span<const std::size_t> next) {
  if (!cache_->fits(usual_size_)) return false;
  for (const std::size_t block : next) {
    SharedCache::Pinned pinned;
    if (cache_->look(key(block), pinned) != SharedCache::Look::claimed) continue;
    try {
      make(block, read, false);
      return true;
    } catch (const Error& error) {  // it is thrown again when the block is needed
      log_debug(error.what());
      return false;
    }
  }
  return false;
}

std::shared_ptr<arrow::Table> SharedBlocks::make(std::size_t block, const Read& read, bool evict) {
  const auto abandon = [this, entry = key(block)](const void*) { cache_->abandon(entry); };
  std::unique_ptr<const SharedBlocks, decltype(abandon)> claim(this, abandon);
  auto table = read(block);
  const auto batch = value_of(table->CombineChunksToBatch(), "a block");
  arrow::io::MockOutputStream counted;
  if (!write(*batch, &counted).ok()) return table;
  const auto size = static_cast<std::size_t>(counted.GetExtentBytesWritten());
  const auto room = cache_->room(key(block), size, evict);
  if (room.empty()) return table;
  arrow::io::FixedSizeBufferWriter sink(std::make_shared<arrow::MutableBuffer>(
      reinterpret_cast<std::uint8_t*>(room.data()), static_cast<std::int64_t>(size)));
  if (!write(*batch, &sink).ok()) return table;
  claim.release();
  cache_->publish(key(block));
  usual_size_ = size;
  return table;
}

}  // namespace lockstep::data
