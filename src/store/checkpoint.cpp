#include <lockstep/checkpoint.h>
#include <lockstep/error.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "store/container.h"
#include "store/data_json.h"
#include "store/hash.h"
#include "store/manifest.h"
#include "store/part_writer.h"
#include "store/safetensors.h"
#include "store/shared_checkpoint.h"
#include "store/tree.h"
#include "store/verify.h"
#include "sys/shared_memory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using store::kManifestName;
using sys::FileKind;

constexpr const char* kData = "data.json";
constexpr const char* kTensors = "tensors.safetensors";

fs::path clean_absolute(const fs::path& path) {
  std::error_code error;
  fs::path clean = fs::weakly_canonical(fs::absolute(path), error);
  if (error) sys::throw_file_error("resolve", path, error.value());
  return clean.has_filename() ? clean : clean.parent_path();
}

bool is_inside(const fs::path& root, const fs::path& path) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

}  // namespace

/// Either a directory or files in memory, and what is known about them so far.
struct Checkpoint::Contents {
  std::optional<fs::path> directory;
  store::FileMap memory;  ///< including manifest.json, if there is one
  /// In shared memory: the files, but manifest.json, which is in `memory`. Their hashes need not be checked.
  std::optional<sys::Mapping> shared;
  std::map<std::string, std::span<const std::byte>, std::less<>> ranges;

  mutable std::mutex mutex;
  mutable bool manifest_read = false;
  mutable std::optional<store::Manifest> manifest;
  mutable std::set<std::string> verified;
  mutable std::optional<sys::Mapping> tensors;

  std::string title() const { return directory ? in_quotes(directory->native()) : "the checkpoint in memory"; }

  /// The file that `name` refers to, links resolved; nothing if there is none.
  std::optional<fs::path> locate(const std::string& name) const {
    const fs::path relative(name);
    if (name.empty() || relative.is_absolute() || name == kManifestName) return std::nullopt;
    if (std::find(relative.begin(), relative.end(), "..") != relative.end()) return std::nullopt;
    const fs::path path = *directory / relative;
    if (sys::files().info(path).kind != FileKind::file) return std::nullopt;
    const fs::path real = clean_absolute(path);
    return is_inside(clean_absolute(*directory), real) ? std::optional(real) : std::nullopt;
  }

  const std::optional<store::Manifest>& read_manifest() const {
    if (!manifest_read) {
      if (directory) {
        if (sys::files().info(*directory / kManifestName).kind != FileKind::none)
          manifest = store::read_manifest(sys::files(), *directory);
      } else if (const auto file = memory.find(std::string(kManifestName)); file != memory.end()) {
        const std::string text(file->second.begin(), file->second.end());
        manifest = store::parse_manifest(text, kManifestName);
      }
      manifest_read = true;
    }
    return manifest;
  }

  /// Throws unless the file's bytes match the manifest, if there is one. Each file is hashed once.
  void check(const std::string& name, std::span<const std::byte> bytes) const {
    const auto& listed = read_manifest();
    if (!listed || verified.contains(name)) return;
    const auto entry =
        std::find_if(listed->files.begin(), listed->files.end(), [&](const auto& e) { return e.name == name; });
    const std::string_view problem =
        entry == listed->files.end()                             ? "is not in its manifest.json"
        : entry->size != static_cast<std::int64_t>(bytes.size()) ? "does not have the size in its manifest.json"
        : entry->xxh3_128 != store::hash_of(bytes)               ? "does not have the hash in its manifest.json"
                                                                 : "";
    if (!problem.empty())
      throw StorageError("[checkpoint] " + in_quotes(name) + " of " + title() + " " + std::string(problem) +
                         ": the file is damaged; use another checkpoint");
    verified.insert(name);
  }

  /// A file in memory, also manifest.json; nothing if there is none.
  std::optional<std::span<const std::byte>> find(const std::string& name) const {
    if (const auto range = ranges.find(name); range != ranges.end()) return range->second;
    const auto file = memory.find(name);
    return file == memory.end() ? std::nullopt : std::optional(std::as_bytes(std::span(file->second)));
  }

  std::vector<store::MemoryFile> memory_files() const {
    std::vector<store::MemoryFile> files;
    for (const auto& [name, bytes] : ranges) files.push_back({name, bytes});
    for (const auto& [name, bytes] : memory)
      if (name != kManifestName) files.push_back({name, std::as_bytes(std::span(bytes))});
    return files;
  }

  /// Writes all files except the manifest into `target`, which is created.
  void write(const fs::path& target) const {
    sys::files().make_directory(target);
    store::PartWriter writer(sys::files(), target);
    if (directory) {
      writer.copy_directory(*directory);
    } else {
      const std::lock_guard lock(mutex);
      for (const auto& file : memory_files()) check(file.name, file.bytes);
      writer.write_files(memory_files());
    }
  }
};

Checkpoint Checkpoint::from_directory(const fs::path& path) {
  if (sys::files().info(path).kind != FileKind::directory)
    throw StorageError("[checkpoint] there is no directory " + in_quotes(path.native()) + "; check the path");
  auto contents = std::make_shared<Contents>();
  contents->directory = fs::absolute(path);
  return Checkpoint(std::move(contents));
}

Checkpoint Checkpoint::from_dict(const Value& data, const std::vector<Tensor>& tensors) {
  if (!data.is_object()) throw ConfigError("[checkpoint] from_dict takes a dict, not " + std::string(data.type_name()));
  std::set<std::string> names;
  for (const auto& tensor : tensors) names.insert(tensor.name);
  const std::string text =
      to_json(store::encode_data(data, [&](const std::string& name) { return names.contains(name); }));
  return from_files(store::to_files({text, tensors, std::nullopt}));
}

Checkpoint Checkpoint::from_bytes(std::span<const std::uint8_t> bytes) {
  auto contents = std::make_shared<Contents>();
  contents->memory = store::read_container(bytes);
  return Checkpoint(std::move(contents));
}

Checkpoint Checkpoint::from_files(std::vector<std::pair<std::string, Bytes>> files) {
  auto contents = std::make_shared<Contents>();
  std::vector<std::pair<std::string, Bytes>> taken = std::move(files);
  for (auto& file : taken) {
    const std::string& name = file.first;
    if (const auto problem = store::file_name_problem(name); !problem.empty() && name != kManifestName)
      throw ConfigError("[checkpoint] the file name " + in_quotes(name) + " " + problem +
                        "; give the file another name");
    if (!contents->memory.try_emplace(name, std::move(file.second)).second)
      throw ConfigError("[checkpoint] the file name " + in_quotes(name) + " occurs twice");
  }
  return Checkpoint(std::move(contents));
}

std::optional<fs::path> Checkpoint::path() const { return contents_->directory; }

Value Checkpoint::to_dict() const {
  const auto names = files();
  if (std::find(names.begin(), names.end(), kData) == names.end())
    throw StorageError("[checkpoint] " + contents_->title() + " was not made from a dict: it has no data.json but " +
                       (names.empty() ? "no file at all" : joined(names, ", ")) + "; use to_directory() or read()");
  const Bytes bytes = read(kData);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string where = kData + (" of " + contents_->title());
  return store::decode_data(parse_json(text, where));
}

std::vector<Tensor> Checkpoint::tensors() const {
  const Contents& contents = *contents_;
  const std::lock_guard lock(contents.mutex);
  std::span<const std::byte> bytes;
  if (!contents.directory) {
    const auto file = contents.find(kTensors);
    if (!file) return {};
    bytes = *file;
  } else {
    if (!contents.tensors) {
      const auto path = contents.locate(kTensors);
      if (!path) return {};
      contents.tensors = sys::files().map(*path);
    }
    bytes = contents.tensors->bytes();
  }
  contents.check(kTensors, bytes);
  return store::parse_safetensors(bytes, kTensors + (" of " + contents.title()));
}

Bytes Checkpoint::to_bytes() const {
  auto names = files();
  const bool has_manifest = metadata().has_value();
  Bytes container = store::begin_container(names.size() + (has_manifest ? 1 : 0));
  for (const auto& name : names) store::append_file(container, name, read(name));
  if (has_manifest) {
    const auto text = contents_->directory ? sys::files().read_file(*contents_->directory / kManifestName)
                                           : contents_->memory.at(std::string(kManifestName));
    store::append_file(container, kManifestName, text);
  }
  return container;
}

void Checkpoint::to_directory(const fs::path& path) const {
  sys::Files& files = sys::files();
  const fs::path target = clean_absolute(path);
  if (contents_->directory && target == clean_absolute(*contents_->directory)) return;
  const FileKind kind = files.info(target).kind;
  if (kind != FileKind::none && kind != FileKind::directory)
    throw StorageError("[checkpoint] " + in_quotes(target.native()) + " exists and is not a directory");
  if (files.info(target / kManifestName).kind != FileKind::none)
    throw StorageError("[checkpoint] " + in_quotes(target.native()) +
                       " holds a committed checkpoint, which is never changed; choose another directory");
  const bool merge = kind == FileKind::directory && !files.list(target).empty();
  const std::string hidden = ".lockstep-" + random_hex(16) + ".partial";
  const fs::path partial = (merge ? target : target.parent_path()) / hidden;
  files.make_directories(partial.parent_path());
  try {
    contents_->write(partial);
    if (merge) {
      for (const auto& file : store::list_tree(files, partial, store::Links::keep)) {
        files.make_directories((target / file.name).parent_path());
        files.rename(file.path, target / file.name);
        files.sync_directory((target / file.name).parent_path());
      }
      files.remove_tree(partial);
    } else {
      files.rename(partial, target);
      files.sync_directory(target.parent_path());
    }
  } catch (...) {
    try {
      files.remove_tree(partial);
    } catch (const StorageError&) {
      // The first error matters more.
    }
    throw;
  }
}

Bytes Checkpoint::read(const std::string& file) const {
  const Contents& contents = *contents_;
  const auto missing = [&] {
    throw StorageError("[checkpoint] " + contents.title() + " has no file " + in_quotes(file) + "; it has " +
                       joined(files(), ", "));
  };
  Bytes bytes;
  if (contents.directory) {
    const auto path = contents.locate(file);
    if (!path) missing();
    bytes = sys::files().read_file(*path);
  } else {
    const auto found = contents.find(file);
    if (!found || file == kManifestName) missing();
    const auto* data = reinterpret_cast<const std::uint8_t*>(found->data());
    bytes.assign(data, data + found->size());
  }
  const std::lock_guard lock(contents.mutex);
  contents.check(file, std::as_bytes(std::span(bytes)));
  return bytes;
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> names;
  if (contents_->directory) {
    for (auto& file : store::list_tree(sys::files(), *contents_->directory, store::Links::follow_inside))
      names.push_back(std::move(file.name));
  } else {
    for (const auto& file : contents_->memory_files()) names.push_back(file.name);
    std::ranges::sort(names);
  }
  std::erase(names, std::string(kManifestName));
  return names;
}

std::optional<Value> Checkpoint::metadata() const {
  const std::lock_guard lock(contents_->mutex);
  const auto& manifest = contents_->read_manifest();
  return manifest ? std::optional(store::to_value(*manifest)) : std::nullopt;
}

void Checkpoint::verify() const {
  if (contents_->directory) {
    const auto problems = store::verify_checkpoint(*contents_->directory);
    if (std::ranges::any_of(problems, &store::Problem::unreadable))
      throw StorageError("[checkpoint] " + contents_->title() + " cannot be checked: " + store::to_text(problems));
    if (!problems.empty())
      throw StorageError("[checkpoint] " + contents_->title() + " is not valid: " + store::to_text(problems) +
                         "; use another checkpoint");
    return;
  }
  const std::lock_guard lock(contents_->mutex);
  for (const auto& file : contents_->memory_files()) contents_->check(file.name, file.bytes);
  if (const auto& manifest = contents_->read_manifest())
    for (const auto& entry : manifest->files)
      if (!contents_->find(entry.name))
        throw StorageError("[checkpoint] " + in_quotes(entry.name) + " of " + contents_->title() + " is missing");
}

Checkpoint detail::checkpoint_in(const fs::path& memory, const std::vector<SharedFile>& files,
                                 const std::string& manifest, bool is_fixed) {
  auto contents = std::make_shared<Checkpoint::Contents>();
  const sys::OpenFile opened = sys::files().open(memory, sys::OpenMode::read);
  std::int64_t end = 0;
  for (const SharedFile& file : files) end = std::max(end, file.offset + file.size);
  contents->shared = sys::map_shared(opened.fd.get(), static_cast<std::uint64_t>(end));
  for (const SharedFile& file : files) {
    contents->ranges[file.name] =
        contents->shared->bytes().subspan(static_cast<std::size_t>(file.offset), static_cast<std::size_t>(file.size));
    if (is_fixed) contents->verified.insert(file.name);
  }
  contents->memory.emplace(std::string(kManifestName), Bytes(manifest.begin(), manifest.end()));
  return Checkpoint(std::move(contents));
}

}  // namespace lockstep
