#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"

namespace arrow::io {
class RandomAccessFile;
}

namespace lockstep::data {

/// A file of a data set. Any thread may call.
struct File {
  std::shared_ptr<arrow::fs::FileSystem> system;
  std::string path;  ///< within the file system
  std::int64_t size = 0;
  std::string origin{};  ///< what stands before the path: "s3://"

  /// For people, and for reading it again.
  std::string shown() const { return origin + path; }
  /// The last component of the path.
  std::string_view name() const;
  /// Throws StorageError that names the file.
  std::shared_ptr<arrow::io::RandomAccessFile> open() const;
  std::shared_ptr<arrow::Buffer> read(std::int64_t begin, std::int64_t end) const;
};

/// The files that `paths` name, in this order: files, directories (all files in them and below, by name, without those
/// that begin with `.` or `_`) and patterns (`*`, `?`, `[...]` within a name, `**` for any directories; by name). A
/// path may begin with the scheme of a file system that Arrow knows. Throws ConfigError for an empty list and
/// StorageError for a path or pattern that names no file.
std::vector<File> find_files(const std::vector<std::string>& paths, const FileOptions& options = {});

/// Whether the components of `path` match those of `pattern`.
bool matches(std::string_view pattern, std::string_view path);

/// For identities: names and sizes.
std::string identity_of(const std::vector<File>& files);

}  // namespace lockstep::data
