#include "store/part_writer.h"

#include <lockstep/error.h>

#include <algorithm>

#include "base/text.h"
#include "store/hashed_file.h"
#include "store/safetensors.h"
#include "store/tree.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

void check_name(const std::string& name) {
  if (const auto problem = file_name_problem(name); !problem.empty())
    throw ConfigError("[checkpoint] the file name " + in_quotes(name) + " " + problem + "; give the file another name");
}

/// The manifest of a committed checkpoint; nothing if there is no manifest.json. A manifest.json that is not ours is
/// refused.
std::optional<Manifest> manifest_in(sys::Files& files, const fs::path& directory) {
  if (files.info(directory / kManifestName).kind == sys::FileKind::none) return std::nullopt;
  try {
    return read_manifest(files, directory);
  } catch (const StorageError& error) {
    throw ConfigError("[checkpoint] " + in_quotes((directory / kManifestName).native()) +
                      " has the name of a file of Lockstep's, but is not one; give it another name (" + error.what() +
                      ")");
  }
}

void check_copied(const Manifest& manifest, const std::vector<FileEntry>& copied, const fs::path& source,
                  const std::set<std::string>& without) {
  for (const auto& entry : manifest.files) {
    if (without.contains(entry.name)) continue;
    const auto found = std::find_if(copied.begin(), copied.end(), [&](const auto& c) { return c.name == entry.name; });
    const bool unchanged = found != copied.end() && (*found == entry || found->xxh3_128.empty());
    if (!unchanged)
      throw StorageError(
          "[checkpoint] " + in_quotes((source / entry.name).native()) +
          (found == copied.end() ? " is missing, its manifest.json lists it" : " differs from its manifest.json") +
          "; remove manifest.json if this was done on purpose");
  }
}

}  // namespace

std::vector<std::pair<std::string, Bytes>> to_files(const DictParts& parts) {
  std::vector<std::pair<std::string, Bytes>> files;
  files.emplace_back("data.json", Bytes(parts.data.begin(), parts.data.end()));
  if (!parts.tensors.empty()) {
    const SafetensorsWriter writer(parts.tensors);
    Bytes bytes;
    bytes.reserve(writer.size());
    writer.write([&](std::span<const std::byte> piece) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(piece.data());
      bytes.insert(bytes.end(), data, data + piece.size());
    });
    files.emplace_back("tensors.safetensors", std::move(bytes));
  }
  if (parts.objects) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(parts.objects->data());
    files.emplace_back("objects.pkl", Bytes(data, data + parts.objects->size()));
  }
  return files;
}

template <typename Fill>
FileEntry PartWriter::write_one(const std::string& name, std::uint64_t size, Fill fill) {
  fs::path parent = directory_;
  if (directories_.insert(parent).second) files_.make_directory(parent);
  for (const auto& component : fs::path(name).parent_path()) {
    parent /= component;
    if (directories_.insert(parent).second) files_.make_directory(parent);
  }
  const fs::path path = directory_ / name;
  sys::OpenFile opened;
  try {
    opened = files_.open(path, sys::OpenMode::create);
  } catch (const StorageError&) {
    if (files_.info(path, false).kind == sys::FileKind::none) throw;
    return {name, static_cast<std::int64_t>(size), ""};
  }
  made_.push_back(path);
  HashedFile file(files_, std::move(opened), size);
  fill(file);
  return file.finish(name);
}

void PartWriter::sync_directories() {
  if (directories_.insert(directory_).second) files_.make_directory(directory_);  // a checkpoint without files
  // Deepest first: a name must not be durable before its contents.
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory)
    files_.sync_directory(*directory);
}

std::vector<FileEntry> PartWriter::write_files(std::span<const MemoryFile> contents) {
  std::set<std::string_view> names;
  for (const auto& file : contents) {
    check_name(file.name);
    if (!names.insert(file.name).second)
      throw ConfigError("[checkpoint] the file name " + in_quotes(file.name) + " occurs twice");
  }
  std::vector<FileEntry> entries;
  for (const auto& file : contents)
    entries.push_back(write_one(file.name, file.bytes.size(), [&](HashedFile& out) { out.write(file.bytes); }));
  sync_directories();
  return entries;
}

std::vector<FileEntry> PartWriter::write_dict(const DictParts& parts) {
  const SafetensorsWriter tensors(parts.tensors);
  std::vector<FileEntry> entries;
  entries.push_back(write_one("data.json", parts.data.size(),
                              [&](HashedFile& out) { out.write(std::as_bytes(std::span(parts.data))); }));
  if (!parts.tensors.empty())
    entries.push_back(write_one("tensors.safetensors", tensors.size(), [&](HashedFile& out) {
      tensors.write([&](std::span<const std::byte> piece) { out.write(piece); });
    }));
  if (parts.objects)
    entries.push_back(
        write_one("objects.pkl", parts.objects->size(), [&](HashedFile& out) { out.write(*parts.objects); }));
  sync_directories();
  return entries;
}

std::vector<FileEntry> PartWriter::copy_directory(const fs::path& source, const std::set<std::string>& without) {
  try {
    return copy(source, without);
  } catch (...) {
    for (const auto& path : made_) {
      try {
        files_.remove_file(path);
      } catch (const StorageError&) {
        // The first error matters more.
      }
    }
    throw;
  }
}

std::vector<FileEntry> PartWriter::copy(const fs::path& source, const std::set<std::string>& without) {
  auto tree = list_tree(files_, source, Links::follow_inside);
  const auto manifest = manifest_in(files_, source);
  std::erase_if(tree, [&](const TreeFile& file) { return file.name == kManifestName || without.contains(file.name); });
  for (const auto& file : tree) check_name(file.name);
  std::vector<FileEntry> entries;
  std::vector<std::byte> buffer(std::size_t{1} << 18);
  for (const auto& file : tree) {
    entries.push_back(write_one(file.name, file.size, [&](HashedFile& out) {
      sys::OpenFile in = files_.open(file.path, sys::OpenMode::read);
      while (const auto count = files_.read(in, buffer)) out.write(std::span(buffer).first(count));
      files_.close(std::move(in));
    }));
  }
  if (manifest) check_copied(*manifest, entries, source, without);
  sync_directories();
  return entries;
}

}  // namespace lockstep::store
