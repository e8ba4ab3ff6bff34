#pragma once

#include <cerrno>
#include <mutex>

#include "sys/files.h"

namespace lockstep::sys {

/// For tests: forwards everything to another Files, counts and records the operations, and injects a fault at the k-th.
class FaultyFiles final : public Files {
 public:
  enum class Fault {
    none,
    fail,         ///< throws StorageError with `error`; the operation is not done
    short_write,  ///< a write takes only its first half, as the system may do; other operations are not affected
    torn_write,   ///< a write takes its first half, then the process is killed; for other operations as `kill`
    kill          ///< the process gets SIGKILL before the operation
  };

  struct Plan {
    std::uint64_t at = 0;  ///< the operation to fail, from 1; 0: none
    Fault fault = Fault::none;
    int error = EIO;
    bool lasting = false;  ///< `fail` and `short_write`: every later operation too
  };

  struct Operation {
    std::string name;  ///< "open", "write", "sync", ...: the function's name
    std::filesystem::path path;
    std::filesystem::path target;  ///< of rename and link
  };

  explicit FaultyFiles(Files& real) : real_(real) {}
  FaultyFiles(Files& real, Plan plan) : real_(real), plan_(plan) {}

  /// The number of operations so far, without start_writeback, which cannot fail.
  std::uint64_t operations() const;
  /// All operations in order.
  std::vector<Operation> log() const;

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

 private:
  /// Records the operation and injects the planned fault; returns what a write still has to do.
  Fault count(std::string_view name, const std::filesystem::path& path, const std::filesystem::path& target = {});

  Files& real_;
  const Plan plan_{};
  mutable std::mutex mutex_;
  std::vector<Operation> log_;
};

}  // namespace lockstep::sys
