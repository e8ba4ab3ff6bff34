#include "sys/faulty_files.h"

#include <csignal>

namespace lockstep::sys {

namespace fs = std::filesystem;

std::uint64_t FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return log_.size();
}

std::vector<FaultyFiles::Operation> FaultyFiles::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

FaultyFiles::Fault FaultyFiles::count(std::string_view name, const fs::path& path, const fs::path& target) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    log_.push_back({std::string(name), path, target});
    number = log_.size();
  }
  const bool hit = plan_.at != 0 && (number == plan_.at || (plan_.lasting && number > plan_.at));
  if (!hit) return Fault::none;
  if (plan_.fault == Fault::fail) throw_file_error(name, path, plan_.error);
  if (plan_.fault == Fault::kill || (plan_.fault == Fault::torn_write && name != "write")) std::raise(SIGKILL);
  return plan_.fault;
}

OpenFile FaultyFiles::open(const fs::path& path, OpenMode mode) {
  count("open", path);
  return real_.open(path, mode);
}

std::size_t FaultyFiles::read(OpenFile& file, std::span<std::byte> into) {
  count("read", file.path);
  return real_.read(file, into);
}

std::size_t FaultyFiles::write(OpenFile& file, std::span<const std::byte> bytes) {
  const Fault fault = count("write", file.path);
  if (fault == Fault::none) return real_.write(file, bytes);
  const std::size_t written = real_.write(file, bytes.first((bytes.size() + 1) / 2));
  if (fault == Fault::torn_write) std::raise(SIGKILL);
  return written;
}

void FaultyFiles::reserve(OpenFile& file, std::uint64_t size) {
  count("reserve", file.path);
  real_.reserve(file, size);
}

void FaultyFiles::start_writeback(OpenFile& file, std::uint64_t offset, std::uint64_t size) {
  real_.start_writeback(file, offset, size);
}

void FaultyFiles::sync(OpenFile& file) {
  count("sync", file.path);
  real_.sync(file);
}

void FaultyFiles::close(OpenFile file) {
  count("close", file.path);
  real_.close(std::move(file));
}

bool FaultyFiles::make_directory(const fs::path& path) {
  count("make_directory", path);
  return real_.make_directory(path);
}

void FaultyFiles::rename(const fs::path& from, const fs::path& to) {
  count("rename", from, to);
  real_.rename(from, to);
}

bool FaultyFiles::link(const fs::path& from, const fs::path& to) {
  count("link", from, to);
  return real_.link(from, to);
}

void FaultyFiles::remove_file(const fs::path& path) {
  count("remove_file", path);
  real_.remove_file(path);
}

void FaultyFiles::remove_directory(const fs::path& path) {
  count("remove_directory", path);
  real_.remove_directory(path);
}

void FaultyFiles::sync_directory(const fs::path& path) {
  count("sync_directory", path);
  real_.sync_directory(path);
}

std::vector<DirectoryItem> FaultyFiles::list(const fs::path& path) {
  count("list", path);
  return real_.list(path);
}

FileInfo FaultyFiles::info(const fs::path& path, bool follow_links) {
  count("info", path);
  return real_.info(path, follow_links);
}

Mapping FaultyFiles::map(const fs::path& path) {
  count("map", path);
  return real_.map(path);
}

}  // namespace lockstep::sys
