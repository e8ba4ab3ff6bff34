#include "data/text.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/compressed.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/compression.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "data/all_blocks.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";
constexpr std::int64_t kPiece = 1 << 20;
/// What one thread scans at a time. Blocks end there, so it must not depend on the machine.
constexpr std::int64_t kStretch = 16 << 20;
/// Streams of a compressed file that wait to be continued.
constexpr std::size_t kIdleStreams = 2;

std::shared_ptr<arrow::util::Codec> codec_for(const File& file) {
  using arrow::Compression;
  for (const auto& [suffix, type] : {std::pair{".gz", Compression::GZIP},
                                     {".zst", Compression::ZSTD},
                                     {".zstd", Compression::ZSTD},
                                     {".bz2", Compression::BZ2},
                                     {".lz4", Compression::LZ4_FRAME},
                                     {".br", Compression::BROTLI}})
    if (file.name().ends_with(suffix)) return value_of(arrow::util::Codec::Create(type), file.shown());
  for (const char* suffix : {".xz", ".snappy", ".zip", ".7z"})
    if (file.name().ends_with(suffix))
      throw ConfigError("[data] " + file.shown() +
                        " is compressed in a way that cannot be read; unpack it, or use .gz or .zst");
  return nullptr;
}

/// A part of a file, scanned as if a row began after its first line break.
struct Scanned {
  std::string head;  ///< up to and with that line break
  std::optional<RowScanner> rest;
  std::vector<RowBlock> packed;  ///< of a compressed file, all blocks instead
  std::string error;
};

/// Gives the bytes from `begin` to `end` in pieces.
template <class Use>
void in_pieces(const Text& text, std::int64_t begin, std::int64_t end, const Use& use) {
  const auto& file = text.file();
  const auto opened = file.open();
  std::vector<char> piece(static_cast<std::size_t>(std::clamp<std::int64_t>(end - begin, 1, kPiece)));
  while (begin < end) {
    const auto wanted = std::min<std::int64_t>(static_cast<std::int64_t>(piece.size()), end - begin);
    const auto got = value_of(opened->ReadAt(begin, wanted, piece.data()), file.shown());
    if (got == 0) fail(file.shown(), "has become shorter while it was read");
    use(std::string_view(piece.data(), static_cast<std::size_t>(got)));
    begin += got;
  }
}

Scanned scan_stretch(const Text& text, std::int64_t begin, std::int64_t end, bool at_row_start, const RowRules& rules,
                     std::int64_t target) {
  Scanned scanned;
  if (at_row_start) scanned.rest.emplace(rules, target, begin, 0);
  std::int64_t at = begin;
  in_pieces(text, begin, end, [&](std::string_view piece) {
    if (!scanned.rest) {
      const auto found = piece.find('\n');
      const auto head = piece.substr(0, found == std::string_view::npos ? found : found + 1);
      scanned.head += head;
      at += static_cast<std::int64_t>(head.size());
      piece.remove_prefix(head.size());
      if (found != std::string_view::npos) scanned.rest.emplace(rules, target, at, 0);
    }
    if (scanned.rest) scanned.rest->feed(piece);
  });
  return scanned;
}

/// Adds the next part of a file to what came before it.
void join(RowScanner& before, Scanned scanned, const Text& text, std::int64_t end) {
  before.feed(scanned.head);
  if (!scanned.rest) return;
  if (before.at_row_start())
    before.append(std::move(*scanned.rest));
  else  // the line break was within quotes
    in_pieces(text, before.offset(), end, [&](std::string_view piece) { before.feed(piece); });
}

std::vector<RowBlock> scan_packed(const RowsOfText& rows, const RowRules& rules, std::int64_t target) {
  RowScanner scanner(rules, std::max(target, kPackedBlock), rows.begin, rows.line);
  for (std::int64_t at = rows.begin;;) {
    const auto piece = rows.text->read(at, at + kPiece);
    if (piece->size() == 0) return scanner.finish();
    scanner.feed(text_of(*piece));
    at += piece->size();
  }
}

}  // namespace

Text::Text(File file) : file_(std::move(file)), codec_(codec_for(file_)) {}

Text::Stream Text::take_stream(std::int64_t before) const {
  {
    const std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto each = idle_.begin(); each != idle_.end(); ++each)
      if (each->at <= before && (best == idle_.end() || each->at > best->at)) best = each;
    if (best != idle_.end()) {
      Stream found = std::move(*best);
      idle_.erase(best);
      return found;
    }
  }
  auto packed = value_of(file_.system->OpenInputStream(file_.path), file_.shown());
  return {value_of(arrow::io::CompressedInputStream::Make(codec_.get(), packed), file_.shown()), 0};
}

std::shared_ptr<arrow::Buffer> Text::read(std::int64_t begin, std::int64_t end) const {
  if (!codec_) end = std::min(end, file_.size);
  if (begin >= end || file_.size == 0) return std::make_shared<arrow::Buffer>(nullptr, 0);
  if (!codec_) return value_of(file_.open()->ReadAt(begin, end - begin), file_.shown());
  Stream stream = take_stream(begin);
  while (stream.at < begin) {
    const auto passed = value_of(stream.stream->Read(std::min(begin - stream.at, kPiece)), file_.shown());
    if (passed->size() == 0) return passed;
    stream.at += passed->size();
  }
  auto buffer = value_of(stream.stream->Read(end - begin), file_.shown());
  stream.at += buffer->size();
  const std::lock_guard lock(mutex_);
  if (idle_.size() == kIdleStreams) idle_.erase(idle_.begin());
  idle_.push_back(std::move(stream));
  return buffer;
}

std::vector<ScannedRows> scan_rows(const std::vector<RowsOfText>& texts, const RowRules& rules, std::int64_t target) {
  struct Job {
    std::size_t text;
    std::int64_t begin, end;
  };
  std::vector<Job> jobs;
  std::vector<RowScanner> scanners;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const auto& [text, begin, line] = texts[n];
    scanners.emplace_back(rules, target, begin, line);
    if (text->is_packed()) jobs.push_back({n, begin, begin});
    for (std::int64_t at = begin; at < text->file().size && !text->is_packed(); at += kStretch)
      jobs.push_back({n, at, std::min(at + kStretch, text->file().size)});
  }
  const auto scan = [&](std::size_t number) -> Scanned {
    const Job& job = jobs[number];
    const RowsOfText& rows = texts[job.text];
    Scanned scanned;
    try {
      if (rows.text->is_packed())
        scanned.packed = scan_packed(rows, rules, target);
      else
        scanned = scan_stretch(*rows.text, job.begin, job.end, job.begin == rows.begin, rules, target);
    } catch (const StorageError& error) {
      scanned.error = error.what();
    }
    return scanned;
  };
  std::vector<ScannedRows> found(texts.size());
  std::size_t next = 0;
  for_all_blocks("find rows", jobs.size(), scan, [&](Scanned scanned) {
    const Job& job = jobs[next++];
    ScannedRows& rows = found[job.text];
    if (!rows.error.empty()) return;
    rows.error = std::move(scanned.error);
    rows.blocks = std::move(scanned.packed);
    if (rows.error.empty() && !texts[job.text].text->is_packed())
      join(scanners[job.text], std::move(scanned), *texts[job.text].text, job.end);
  });
  for (std::size_t n = 0; n < texts.size(); ++n)
    if (!texts[n].text->is_packed() && found[n].error.empty()) found[n].blocks = scanners[n].finish();
  return found;
}

std::int64_t text_begin(const Text& text) {
  const auto size = static_cast<std::int64_t>(kMark.size());
  return text_of(*text.read(0, size)) == kMark ? size : 0;
}

std::string_view text_of(const arrow::Buffer& buffer) { return static_cast<std::string_view>(buffer); }

}  // namespace lockstep::data
