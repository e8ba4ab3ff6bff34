#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "sys/files.h"

namespace lockstep::metrics {

/// A file (mode 0600) that is appended to, through a buffer of whole records: append one to buffer() and call
/// end_record(). Errors throw StorageError with the path; unwritten data stays in the buffer, so flush() may be
/// retried. Not thread-safe. The destructor drops what was not flushed.
class AppendFile {
 public:
  static constexpr std::size_t kBufferSize = 256 * 1024;

  AppendFile(sys::Files& files, std::filesystem::path path) : files_(&files), path_(std::move(path)) {}

  /// OpenMode::append continues at the end of an existing file; `replace` and `create` start a new one.
  void open(sys::OpenMode mode);
  bool is_open() const { return static_cast<bool>(file_.fd); }
  sys::Files& files() const { return *files_; }
  const std::filesystem::path& path() const { return path_; }

  std::string& buffer() { return buffer_; }
  void end_record() {
    if (buffer_.size() >= kBufferSize) flush();
  }
  /// Writes the buffer to the file; afterwards other processes can read everything.
  void flush();
  /// Flushes to the disk itself.
  void sync();
  /// Renames the open file, replacing a file of that name.
  void rename(const std::filesystem::path& to);
  /// Flushes and closes. Does nothing if it is closed.
  void close();

 private:
  sys::Files* files_;
  std::filesystem::path path_;
  sys::OpenFile file_;
  std::string buffer_;
};

/// A regular file's contents, mapped; empty if there is none.
sys::Mapping map_existing(sys::Files& files, const std::filesystem::path& path);
std::string_view text_of(const sys::Mapping& mapping);

/// Truncates the file to `size` bytes, to remove a torn end that a killed process left.
void cut_file(sys::Files& files, const std::filesystem::path& path, std::size_t size);

}  // namespace lockstep::metrics
