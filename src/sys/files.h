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
  std::uint64_t names = 0;  ///< the number of hard links
};

struct DirectoryItem {
  std::string name;
  FileKind kind = FileKind::other;  ///< of the entry itself: symlinks are not followed
};

enum class OpenMode {
  read,
  create,   ///< for writing; fails if the name exists
  replace,  ///< for writing; a new file that replaces an existing file or link
  append    ///< for writing at the end; created if it is missing; a link is an error
};

/// An open file and its path for error messages. The destructor closes it and ignores errors.
struct OpenFile {
  Descriptor fd;
  std::filesystem::path path;
};

/// A file's contents in memory, read-only, as long as this object exists. If another process truncates the file
/// meanwhile, reading it ends in SIGBUS.
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

/// The file system. All durable writing goes through it. Each virtual function is about one system call, so that a
/// decorator can make any of them fail; the other functions use these. New files are 0600, new directories 0700.
///
/// Every function throws StorageError with the path and the system's reason. Any thread may call.
class Files {
 public:
  virtual ~Files() = default;

  virtual OpenFile open(const std::filesystem::path& path, OpenMode mode) = 0;
  /// Returns the number of bytes read; 0 at the end.
  virtual std::size_t read(OpenFile& file, std::span<std::byte> into) = 0;
  /// Returns the number of bytes written: at least one, maybe fewer than given.
  virtual std::size_t write(OpenFile& file, std::span<const std::byte> bytes) = 0;
  /// Reserves `size` bytes if the file system can, so that a full disk is noticed before the first byte is written.
  virtual void reserve(OpenFile& file, std::uint64_t size) = 0;
  /// Asks the kernel to start writing this range to the disk. Does not wait and never fails.
  virtual void start_writeback(OpenFile& file, std::uint64_t offset, std::uint64_t size) = 0;
  virtual void sync(OpenFile& file) = 0;
  virtual void close(OpenFile file) = 0;
  /// Returns false if the directory already exists; a link to one is an error.
  virtual bool make_directory(const std::filesystem::path& path) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Makes a hard link. Returns false if the file system does not support it, or there is no file `from`; an existing
  /// name is an error.
  virtual bool link(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_file(const std::filesystem::path& path) = 0;
  virtual void remove_directory(const std::filesystem::path& path) = 0;
  /// Makes the names in a directory durable.
  virtual void sync_directory(const std::filesystem::path& path) = 0;
  /// The entries sorted by name, without `.` and `..`.
  virtual std::vector<DirectoryItem> list(const std::filesystem::path& path) = 0;
  /// FileKind::none if there is nothing of that name; `symlink` only if links are not followed.
  virtual FileInfo info(const std::filesystem::path& path, bool follow_links = true) = 0;
  virtual Mapping map(const std::filesystem::path& path) = 0;

  void write_all(OpenFile& file, std::span<const std::byte> bytes);
  std::vector<std::uint8_t> read_file(const std::filesystem::path& path);
  std::string read_text(const std::filesystem::path& path);
  /// Creates `path` and its missing parents, and makes their names durable.
  void make_directories(const std::filesystem::path& path);
  /// Removes a file, a link, or a directory with its contents. Does nothing if there is nothing. Links are not
  /// followed.
  void remove_tree(const std::filesystem::path& path);
  /// Replaces a file's contents. At every moment, even after a power cut, the file has its old or its new contents.
  /// Writes `<name>.partial` beside it first, and removes that on an error.
  void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
  void replace_file(const std::filesystem::path& path, std::string_view text);
  /// The same, but the new contents may be lost in a power cut until the directory is synced.
  void replace_file_unsynced_name(const std::filesystem::path& path, std::span<const std::byte> bytes);

 private:
  void drop(const std::filesystem::path& path) noexcept;
};

/// The operating system's file system. Has no state.
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
  /// How the system calls reach a path: a name relative to an open directory.
  struct Place {
    int directory;  ///< maybe AT_FDCWD
    std::string name;
    int no_follow = 0;   ///< O_NOFOLLOW if the name must not be a link, even for reading
    Descriptor owned{};  ///< owns `directory`, if it was opened for this
  };
  virtual Place locate(const std::filesystem::path& path) const;
};

/// Describes an open file.
FileInfo info_of(const OpenFile& file);

/// The PosixFiles of this process.
Files& files();

/// An error of the operating system.
class FileError : public StorageError {
 public:
  FileError(const std::string& message, int error) : StorageError(message), error_(error) {}
  /// Whether there is no such file. Other errors say nothing about its contents.
  bool is_missing() const;

 private:
  int error_;  ///< errno
};

/// FileError "[storage] could not <action> <path>: <reason of `error`> (<its name>); <what to do>".
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error);

}  // namespace lockstep::sys
