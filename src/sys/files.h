#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <lockstep/error.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::sys {

enum class FileKind { none, file, directory, symlink, other };

struct FileInfo {
  FileKind kind = FileKind::none;
  std::uint64_t size = 0;
  std::uint32_t owner = 0;  ///< user id
  std::uint32_t mode = 0;   ///< permission bits
  std::uint64_t names = 0;  ///< how many there are (hard links)
};

struct DirectoryItem {
  std::string name;
  FileKind kind = FileKind::other;  ///< of the entry itself: symlinks are not followed
};

enum class OpenMode {
  read,
  create,   ///< for writing; fails when the name is taken
  replace,  ///< for writing; a new file in the place of the file or link that was there
  append    ///< for writing at the end; made when it is not there; a link is an error
};

/// An open file and the name that its errors bear. Closes without a word when it is dropped.
struct OpenFile {
  Descriptor fd;
  std::filesystem::path path;
};

/// A file's contents in memory, read-only, for as long as this lives. Whoever cuts the file shorter meanwhile makes
/// reading it end in SIGBUS.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, std::size_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The file system, as all durable writing sees it. The virtual functions are about one system call each, so that a
/// decorator can fail any of them; the others are made of those. New files are 0600, new directories 0700.
///
/// Every function throws StorageError with the path and the system's reason. Any thread may call.
class Files {
 public:
  virtual ~Files() = default;

  virtual OpenFile open(const std::filesystem::path& path, OpenMode mode) = 0;
  /// How many bytes were read; 0 at the end.
  virtual std::size_t read(OpenFile& file, std::span<std::byte> into) = 0;
  /// How many bytes were written: at least one, maybe fewer than given.
  virtual std::size_t write(OpenFile& file, std::span<const std::byte> bytes) = 0;
  /// Sets `size` bytes aside where the file system can, so that a full disk is known before the first byte is written.
  virtual void reserve(OpenFile& file, std::uint64_t size) = 0;
  /// Asks the kernel to begin writing this range to the disk; does not wait, never fails.
  virtual void start_writeback(OpenFile& file, std::uint64_t offset, std::uint64_t size) = 0;
  virtual void sync(OpenFile& file) = 0;
  virtual void close(OpenFile file) = 0;
  /// False when the directory was there already; a link to one is an error.
  virtual bool make_directory(const std::filesystem::path& path) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// A second name for a file of the same file system (a hard link). False when the file system does not make one, or
  /// there is no file `from`; a taken name is an error.
  virtual bool link(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_file(const std::filesystem::path& path) = 0;
  virtual void remove_directory(const std::filesystem::path& path) = 0;
  /// Makes the names in a directory durable.
  virtual void sync_directory(const std::filesystem::path& path) = 0;
  /// The entries sorted by name, without `.` and `..`.
  virtual std::vector<DirectoryItem> list(const std::filesystem::path& path) = 0;
  /// FileKind::none when there is nothing of that name; `symlink` only when links are not followed.
  virtual FileInfo info(const std::filesystem::path& path, bool follow_links = true) = 0;
  virtual Mapping map(const std::filesystem::path& path) = 0;

  void write_all(OpenFile& file, std::span<const std::byte> bytes);
  std::vector<std::uint8_t> read_file(const std::filesystem::path& path);
  std::string read_text(const std::filesystem::path& path);
  /// Makes `path` and the directories above it that are missing, and makes their names durable.
  void make_directories(const std::filesystem::path& path);
  /// Removes a file, a link or a directory with all in it; nothing there is fine. Links are not followed.
  void remove_tree(const std::filesystem::path& path);
  /// Replaces a file's contents: at every moment, also after a power cut, the old ones or the new ones are there.
  /// Writes a neighbour named `<name>.partial` first.
  void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
  void replace_file(const std::filesystem::path& path, std::string_view text);
};

/// The operating system's own. Holds no state.
class PosixFiles : public Files {
 public:
  OpenFile open(const std::filesystem::path& path, OpenMode mode) override;
  std::size_t read(OpenFile& file, std::span<std::byte> into) override;
  std::size_t write(OpenFile& file, std::span<const std::byte> bytes) override;
  void reserve(OpenFile& file, std::uint64_t size) override;
  void start_writeback(OpenFile& file, std::uint64_t offset, std::uint64_t size) override;
  void sync(OpenFile& file) override;
  void close(OpenFile file) override;
  bool make_directory(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  bool link(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_file(const std::filesystem::path& path) override;
  void remove_directory(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;
  std::vector<DirectoryItem> list(const std::filesystem::path& path) override;
  FileInfo info(const std::filesystem::path& path, bool follow_links) override;
  Mapping map(const std::filesystem::path& path) override;

 protected:
  /// Where the system calls find a path: a name, seen from an open directory.
  struct Place {
    int directory;  ///< maybe AT_FDCWD
    std::string name;
    int no_follow = 0;   ///< O_NOFOLLOW where the name may be no link, even for reading
    Descriptor owned{};  ///< of `directory`, where it was opened for this
  };
  virtual Place locate(const std::filesystem::path& path) const;
};

/// What an open file is.
FileInfo info_of(const OpenFile& file);

/// The PosixFiles that everybody shares.
Files& files();

/// What the system refused, with its reason.
class FileError : public StorageError {
 public:
  FileError(const std::string& message, int error) : StorageError(message), error_(error) {}
  /// Whether there is no such file; anything else says nothing about what the file holds.
  bool is_missing() const;

 private:
  int error_;  ///< errno
};

/// FileError "[storage] could not <action> <path>: <reason of `error`> (<its name>); <what to do>".
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error);

}  // namespace lockstep::sys
