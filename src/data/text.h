#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/files.h"
#include "data/lines.h"

namespace arrow::io {
class InputStream;
}

namespace lockstep::data {

/// Compressed files are cut into blocks of about this many bytes of text: to read one, all text before it is unpacked,
/// unless the block before it was read last.
inline constexpr std::int64_t kPackedBlock = 64 << 20;

/// The text of a file; of a compressed one (by its suffix: .gz, .zst, .bz2, .lz4, .br), unpacked. Any thread may call.
class Text {
 public:
  /// Throws ConfigError for a kind of compression that cannot be read.
  explicit Text(File file);

  const File& file() const { return file_; }
  bool is_packed() const { return codec_ != nullptr; }
  /// The bytes from `begin` to `end`: fewer at the end of the text. Throws StorageError that names the file.
  std::shared_ptr<arrow::Buffer> read(std::int64_t begin, std::int64_t end) const;

 private:
  /// Text can only be unpacked from its beginning.
  struct Stream {
    std::shared_ptr<arrow::io::InputStream> stream;
    std::int64_t at = 0;
  };
  Stream take_stream(std::int64_t before) const;

  File file_;
  std::shared_ptr<arrow::util::Codec> codec_;
  mutable std::mutex mutex_;
  mutable std::vector<Stream> idle_;  ///< oldest first
};

/// Text, and where its rows begin.
struct RowsOfText {
  std::shared_ptr<const Text> text;
  std::int64_t begin = 0;
  std::int64_t line = 1;  ///< at `begin`
};

struct ScannedRows {
  std::vector<RowBlock> blocks;
  std::string error;  ///< why the text could not be read, if it could not
};

/// The blocks of each text. Large files are read in parts by several threads.
std::vector<ScannedRows> scan_rows(const std::vector<RowsOfText>& texts, const RowRules& rules, std::int64_t target);

/// Where text begins: after the mark of UTF-8, if there is one.
std::int64_t text_begin(const Text& text);

std::string_view text_of(const arrow::Buffer& buffer);

}  // namespace lockstep::data
