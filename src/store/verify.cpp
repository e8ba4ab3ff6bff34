#include "store/verify.h"

#include <lockstep/error.h>

#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "store/hashed_file.h"
#include "store/manifest.h"
#include "store/tree.h"

namespace lockstep::store {
namespace {

Problem wrong_size(const FileEntry& expected, std::int64_t size) {
  return {expected.name, "has " + std::to_string(size) + " bytes, the manifest says " + std::to_string(expected.size)};
}

Problem refused(const std::string& file, const sys::FileError& error) {
  if (error.is_missing()) return {file, std::string("is missing: ") + error.what()};
  return {file, std::string("cannot be read: ") + error.what(), true};
}

std::optional<Problem> compare_contents(const std::filesystem::path& path, const FileEntry& entry, sys::Files& files) {
  try {
    const auto actual = hash_file(files, path / entry.name, entry.name);
    if (actual.size != entry.size) return wrong_size(entry, actual.size);
    if (actual.xxh3_128 == entry.xxh3_128) return std::nullopt;
    return Problem{entry.name, "has the hash " + actual.xxh3_128 + ", the manifest says " + entry.xxh3_128};
  } catch (const sys::FileError& error) {
    return refused(entry.name, error);
  }
}

}  // namespace

std::vector<Problem> compare_sizes(const std::filesystem::path& path, const std::vector<FileEntry>& expected,
                                   sys::Files& files) {
  std::map<std::string, TreeFile> found;
  for (auto& file : list_tree(files, path, Links::keep)) found.emplace(file.name, file);
  found.erase(std::string(kManifestName));
  std::vector<Problem> problems;
  for (const auto& entry : expected) {
    const auto file = found.extract(entry.name);
    if (!file)
      problems.push_back({entry.name, "is missing"});
    else if (file.mapped().kind != sys::FileKind::file)
      problems.push_back({entry.name, "is not a regular file"});
    else if (static_cast<std::int64_t>(file.mapped().size) != entry.size)
      problems.push_back(wrong_size(entry, static_cast<std::int64_t>(file.mapped().size)));
  }
  for (const auto& [name, file] : found) problems.push_back({name, "is not in the manifest"});
  return problems;
}

std::vector<Problem> verify_checkpoint(const std::filesystem::path& path, sys::Files& files) {
  const std::string manifest_name(kManifestName);
  try {
    if (files.info(path).kind != sys::FileKind::directory)
      return {{manifest_name, "is missing: there is no directory"}};
    if (files.info(path / kManifestName).kind == sys::FileKind::none)
      return {{manifest_name, "is missing: the checkpoint was never committed"}};
    const Manifest manifest = read_manifest(files, path);
    auto problems = compare_sizes(path, manifest.files, files);
    std::set<std::string> known;
    for (const auto& problem : problems) known.insert(problem.file);
    for (const auto& entry : manifest.files) {
      if (known.contains(entry.name)) continue;
      if (auto problem = compare_contents(path, entry, files)) problems.push_back(std::move(*problem));
    }
    return problems;
  } catch (const sys::FileError& error) {
    return {refused(manifest_name, error)};
  } catch (const StorageError& error) {
    return {{manifest_name, std::string("cannot be used: ") + error.what()}};
  }
}

std::string to_text(const std::vector<Problem>& problems) {
  std::vector<std::string> items;
  for (const auto& problem : problems) items.push_back(problem.file + " " + problem.what);
  return joined(items, "; ");
}

}  // namespace lockstep::store
