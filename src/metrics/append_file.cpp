#include "metrics/append_file.h"

#include <unistd.h>

#include <cerrno>
#include <lockstep/error.h>

namespace lockstep::metrics {
namespace {

constexpr std::size_t kMostKept = 1 << 20;

}  // namespace

void AppendFile::open(sys::OpenMode mode) { file_ = files_->open(path_, mode); }

void AppendFile::flush() {
  std::size_t written = 0;
  try {
    while (written < buffer_.size())
      written += files_->write(file_, std::as_bytes(std::span(buffer_).subspan(written)));
  } catch (const StorageError&) {
    buffer_.erase(0, written);
    throw;
  }
  buffer_.clear();
  if (buffer_.capacity() > kMostKept) buffer_.shrink_to_fit();  // do not keep the memory of one huge report
}

void AppendFile::sync() {
  flush();
  files_->sync(file_);
}

void AppendFile::rename(const std::filesystem::path& to) {
  files_->rename(path_, to);
  path_ = file_.path = to;
}

void AppendFile::close() {
  if (!is_open()) return;
  flush();
  files_->close(std::move(file_));
}

sys::Mapping map_existing(sys::Files& files, const std::filesystem::path& path) {
  const sys::FileInfo info = files.info(path);
  return info.kind == sys::FileKind::file && info.size > 0 ? files.map(path) : sys::Mapping();
}

std::string_view text_of(const sys::Mapping& mapping) {
  return {reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size()};
}

void cut_file(sys::Files& files, const std::filesystem::path& path, std::size_t size) {
  const sys::OpenFile file = files.open(path, sys::OpenMode::append);
  if (::ftruncate(file.fd.get(), static_cast<off_t>(size)) != 0) sys::throw_file_error("cut", path, errno);
}

}  // namespace lockstep::metrics
