#include "storage/objects.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <lockstep/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "storage/parallel.h"
#include "storage/retry.h"
#include "store/hash.h"
#include "store/hashed_file.h"
#include "sys/files.h"

namespace lockstep::storage {
namespace {

namespace fs = std::filesystem;

/// Parts of a large object. S3 has at most 10,000.
constexpr std::int64_t kPart = std::int64_t{16} << 20;
constexpr std::int64_t kMostParts = 9000;
/// Parts of one upload that are in memory: the stream would take any number of them.
constexpr int kPartsAtOnce = 8;
constexpr std::size_t kReadsAtOnce = 6;
/// What has the wrong hash so often was not spoiled on its way.
constexpr int kHashTries = 3;
/// Longer ones are no manifest or record of ours.
constexpr std::int64_t kLongestText = std::int64_t{256} << 20;

template <class T>
T value_of(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Object stores need no directories.
void make_parent(const Place& place) {
  if (!place.has_objects) check(place.system->CreateDir(place.path.substr(0, place.path.rfind('/')), true));
}

/// Where a file that must not be seen half-written is written first.
Place unfinished(const Place& place) {
  return place.has_objects ? place : Place{place.system, place.path + ".partial", place.shown, false};
}

std::shared_ptr<arrow::Buffer> read_part(sys::OpenFile& file, std::int64_t size) {
  std::shared_ptr<arrow::Buffer> part = value_of(arrow::AllocateBuffer(size));
  std::span<std::byte> left{reinterpret_cast<std::byte*>(part->mutable_data()), static_cast<std::size_t>(size)};
  while (!left.empty()) {
    const std::size_t count = sys::files().read(file, left);
    if (count == 0) throw StorageError(in_quotes(file.path.native()) + " became shorter while it was uploaded");
    left = left.subspan(count);
  }
  return part;
}

/// An output stream that is aborted unless it was closed: a partly written object must not appear.
class Upload {
 public:
  explicit Upload(const Place& place) : stream_(value_of(place.system->OpenOutputStream(place.path))) {}
  ~Upload() {
    if (!closed_) (void)stream_->Abort();
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  void write(const std::shared_ptr<arrow::Buffer>& part) {
    check(stream_->Write(part));
    if (++in_flight_ < kPartsAtOnce) return;
    check(stream_->Flush());
    in_flight_ = 0;
  }
  void close() {
    check(stream_->Close());
    closed_ = true;
  }

 private:
  std::shared_ptr<arrow::io::OutputStream> stream_;
  int in_flight_ = 0;
  bool closed_ = false;
};

void put_once(const fs::path& from, const Place& to, const FileEntry* expected) {
  sys::OpenFile file = sys::files().open(from, sys::OpenMode::read);
  const auto size = static_cast<std::int64_t>(sys::info_of(file).size);
  const auto damaged = [&](const std::string& what) {
    return StorageError(in_quotes(from.native()) + " is damaged: " + what + "; it is not uploaded");
  };
  if (expected != nullptr && size != expected->size)
    throw damaged("it has " + std::to_string(size) + " bytes instead of " + std::to_string(expected->size));
  make_parent(to);
  const Place place = unfinished(to);
  Upload upload(place);
  store::Hasher hasher;
  const std::int64_t part_size = std::max(kPart, size / kMostParts + 1);
  for (std::int64_t done = 0; done < size; done += part_size) {
    const auto part = read_part(file, std::min(part_size, size - done));
    if (expected != nullptr)
      hasher.update(std::as_bytes(std::span(part->data(), static_cast<std::size_t>(part->size()))));
    if (expected != nullptr && done + part->size() == size && hasher.digest() != expected->xxh3_128)
      throw damaged("it has the wrong hash");
    upload.write(part);
  }
  upload.close();
  if (place.path != to.path) check(to.system->Move(place.path, to.path));
}

/// Arrow's word for a missing object, in a status without a message of its own.
bool is_missing(const arrow::fs::FileInfo& info) { return info.type() != arrow::fs::FileType::File; }

void write_at(const sys::OpenFile& file, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file.fd.get(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) sys::throw_file_error("write", file.path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void read_into(arrow::io::RandomAccessFile& object, const fs::path& to, std::int64_t size) {
  sys::Files& files = sys::files();
  sys::OpenFile file = files.open(to, sys::OpenMode::replace);
  files.reserve(file, static_cast<std::uint64_t>(size));
  const auto parts = static_cast<std::size_t>((size + kPart - 1) / kPart);
  in_parallel(parts, kReadsAtOnce, [&](std::size_t number) {
    const std::int64_t offset = static_cast<std::int64_t>(number) * kPart;
    const std::int64_t wanted = std::min(kPart, size - offset);
    const auto part = value_of(object.ReadAt(offset, wanted));
    if (part->size() != wanted)
      throw StorageError("got " + std::to_string(part->size()) + " of " + std::to_string(wanted) + " bytes");
    write_at(file, std::as_bytes(std::span(part->data(), static_cast<std::size_t>(wanted))), offset);
  });
  files.close(std::move(file));
}

/// `tries`: how often it was downloaded with the wrong hash.
bool get_once(const Place& from, const fs::path& to, const FileEntry* expected, int& tries) {
  const auto info = value_of(from.system->GetFileInfo(from.path));
  if (is_missing(info)) return false;
  if (expected != nullptr && info.size() != expected->size)
    throw StorageError("it is damaged: it has " + std::to_string(info.size()) + " bytes instead of " +
                       std::to_string(expected->size));
  const auto object = value_of(from.system->OpenInputFile(info));
  const fs::path partial = to.native() + ".partial";
  read_into(*object, partial, info.size());
  if (expected != nullptr && store::hash_file(sys::files(), partial, expected->name).xxh3_128 != expected->xxh3_128)
    throw StorageError((++tries < kHashTries ? "" : "it is damaged: ") + std::string("it has the wrong hash"));
  sys::files().rename(partial, to);
  return true;
}

std::string below(const Place& place, const std::string& path) {
  return path.size() > place.path.size() + 1 ? path.substr(place.path.size() + 1) : "";
}

}  // namespace

void put_file(const fs::path& from, const Place& to, Instant deadline, const FileEntry* expected) {
  with_retries("upload " + to.shown.text(), deadline, [&] { put_once(from, to, expected); });
}

void put_text(const std::string& text, const Place& to, Instant deadline) {
  with_retries("write " + to.shown.text(), deadline, [&] {
    make_parent(to);
    const Place place = unfinished(to);
    Upload upload(place);
    upload.write(arrow::Buffer::FromString(text));
    upload.close();
    if (place.path != to.path) check(to.system->Move(place.path, to.path));
  });
}

bool get_file(const Place& from, const fs::path& to, Instant deadline, const FileEntry* expected) {
  bool found = false;
  int wrong = 0;
  with_retries("download " + from.shown.text(), deadline, [&] { found = get_once(from, to, expected, wrong); });
  return found;
}

std::optional<std::string> get_text(const Place& from, Instant deadline) {
  std::optional<std::string> text;
  with_retries("read " + from.shown.text(), deadline, [&] {
    const auto info = value_of(from.system->GetFileInfo(from.path));
    if (is_missing(info)) return;
    if (info.size() > kLongestText)
      throw StorageError("it is damaged: it has " + std::to_string(info.size()) + " bytes");
    const auto object = value_of(from.system->OpenInputFile(info));
    const auto bytes = value_of(object->ReadAt(0, info.size()));
    if (bytes->size() != info.size()) throw StorageError("only a part of it arrived");
    text = bytes->ToString();
  });
  return text;
}

void check_reachable(const Place& place, Instant deadline) {
  with_retries("use " + place.shown.text(), deadline, [&] {
    if (!place.has_objects) check(place.system->CreateDir(place.path, true));
    const auto info = value_of(place.system->GetFileInfo(place.path));
    if (info.type() != arrow::fs::FileType::Directory)
      throw StorageError("Bucket does not exist: " + in_quotes(place.path) + "; create it, or check the address");
  });
}

std::vector<store::RemoteEntry> list(const Place& place, bool recursive, Instant deadline) {
  std::vector<store::RemoteEntry> entries;
  with_retries("list " + place.shown.text(), deadline, [&] {
    entries.clear();
    arrow::fs::FileSelector selector;
    selector.base_dir = place.path;
    selector.recursive = recursive;
    selector.allow_not_found = true;
    for (const auto& info : value_of(place.system->GetFileInfo(selector))) {
      const bool is_directory = info.type() == arrow::fs::FileType::Directory;
      std::string name = below(place, info.path());
      if (!name.empty())
        entries.push_back(
            {std::move(name), static_cast<std::uint64_t>(std::max<std::int64_t>(info.size(), 0)), is_directory});
    }
  });
  std::ranges::sort(entries, {}, &store::RemoteEntry::name);
  return entries;
}

void remove_object(const Place& place, Instant deadline) {
  with_retries("remove " + place.shown.text(), deadline, [&] {
    if (!is_missing(value_of(place.system->GetFileInfo(place.path)))) check(place.system->DeleteFile(place.path));
  });
}

void remove_below(const Place& place, Instant deadline) {
  with_retries("remove " + place.shown.text(), deadline, [&] {
    const auto info = value_of(place.system->GetFileInfo(place.path));
    if (info.type() == arrow::fs::FileType::Directory) check(place.system->DeleteDir(place.path));
  });
}

}  // namespace lockstep::storage
