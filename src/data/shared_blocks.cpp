#include "data/shared_blocks.h"

#include <arrow/buffer.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "data/numbers.h"
#include "data/shared_table.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

constexpr std::chrono::seconds kPatience{10};

/// FNV-1a: the same in every process.
std::uint64_t hash(std::string_view text, std::uint64_t start = 0xcbf2'9ce4'8422'2325) {
  for (const char c : text) start = (start ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return start;
}

/// The first byte of an entry; the block begins at kHead.
enum class Form : std::uint8_t {
  numbers,  ///< see numbers.h
  stream    ///< of Arrow's format for files
};
constexpr std::size_t kHead = 64;

/// Of a pass: blocks are the same in passes with the same one.
std::uint64_t identity(const Dataset& dataset, std::int64_t epoch) {
  return hash(dataset.fingerprint() + " " + dataset.schema()->ToString() + " " + std::to_string(epoch));
}

}  // namespace

SharedBlocks::SharedBlocks(std::shared_ptr<SharedCache> cache, Dataset dataset, std::int64_t epoch)
    : cache_(std::move(cache)), dataset_(std::move(dataset)) {
  const std::uint64_t pass = identity(dataset_, epoch);
  identity_ = hash(std::to_string(cache_->turn(pass)), pass);
}

std::uint64_t SharedBlocks::key(std::size_t block) const { return hash(std::to_string(block), identity_); }

SharedBlocks::Got SharedBlocks::get(std::size_t block, std::span<const std::size_t> next) {
  const Instant deadline = now() + kPatience;
  for (;;) {
    const std::uint32_t seen = cache_->changes();
    SharedCache::Pinned pinned;
    switch (cache_->look(key(block), pinned)) {
      case SharedCache::Look::ready:
        return in_memory(block, std::move(pinned));
      case SharedCache::Look::claimed:
        return make(block, true);
      case SharedCache::Look::full:
        return alone(block);
      case SharedCache::Look::busy:
        break;
    }
    if (now() >= deadline) return alone(block);
    if (!help(next)) cache_->wait(seen, std::chrono::milliseconds(100));
  }
}

bool SharedBlocks::help(std::span<const std::size_t> next) {
  if (!cache_->fits(usual_size_)) return false;
  for (const std::size_t block : next) {
    SharedCache::Pinned pinned;
    if (cache_->look(key(block), pinned) != SharedCache::Look::claimed) continue;
    try {
      make(block, false);
      return true;
    } catch (const Error& error) {  // it is thrown again when the block is needed
      log_debug(error.what());
      return false;
    }
  }
  return false;
}

SharedBlocks::Got SharedBlocks::in_memory(std::size_t block, SharedCache::Pinned pinned) const {
  const auto form = static_cast<Form>(pinned.bytes.front());
  const auto bytes = arrow::SliceBuffer(buffer_of(std::move(pinned)), kHead);
  if (form == Form::stream) return {read_table(bytes), true};
  return {table_of_numbers(dataset_.schema(), dataset_.rows_of_blocks()[block], bytes), true};
}

SharedBlocks::Got SharedBlocks::alone(std::size_t block) const { return {dataset_.read(block)}; }

SharedBlocks::Got SharedBlocks::make(std::size_t block, bool evict) {
  const auto abandon = [this, entry = key(block)](const void*) { cache_->abandon(entry); };
  std::unique_ptr<const SharedBlocks, decltype(abandon)> claim(this, abandon);
  std::shared_ptr<arrow::Table> table;
  if (!make_numbers(block, evict)) {
    table = dataset_.read(block);
    const auto batch = value_of(table->CombineChunksToBatch(), "a block");
    const auto room =
        write_table(*cache_, key(block), *value_of(arrow::Table::FromRecordBatches({batch}), "a block"), kHead, evict);
    if (room.empty()) return {table};
    room.front() = static_cast<std::byte>(Form::stream);
    usual_size_ = room.size();
  }
  claim.release();
  auto pinned = cache_->publish(key(block));
  if (pinned.hold) return in_memory(block, std::move(pinned));
  return table ? Got{table} : alone(block);
}

/// Reads straight into the memory of all ranks: nothing is copied.
bool SharedBlocks::make_numbers(std::size_t block, bool evict) {
  const std::size_t size = aligned_bytes(*dataset_.schema(), dataset_.rows_of_blocks()[block]);
  if (size == 0) return false;
  const auto bytes = cache_->room(key(block), kHead + size, evict);
  if (bytes.empty() || !dataset_.read_numbers(block, {bytes.subspan(kHead), cache_->hold(key(block))})) return false;
  bytes.front() = static_cast<std::byte>(Form::numbers);
  usual_size_ = kHead + size;
  return true;
}

}  // namespace lockstep::data
