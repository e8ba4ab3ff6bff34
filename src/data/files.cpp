#include "data/files.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "data/file_systems.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

using arrow::fs::FileInfo;
using arrow::fs::FileSelector;
using arrow::fs::FileType;

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

/// Cuts off the first component.
std::string_view cut_component(std::string_view& path) {
  const auto slash = path.find('/');
  const auto first = path.substr(0, slash);
  path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  return first;
}

bool is_hidden(std::string_view below) {
  while (!below.empty())
    if (const auto part = cut_component(below); part.starts_with('.') || part.starts_with('_')) return true;
  return false;
}

/// A path as it is shown: URIs have no normal form.
std::string normal_path(const std::string& path) {
  if (path.find("://") != std::string::npos) return path;
  return std::filesystem::absolute(path).lexically_normal().string();
}

/// The files in `directory` and below that `wanted` accepts, by name.
template <class Wanted>
std::vector<File> files_below(const Place& place, const std::string& directory, std::int32_t depth,
                              const Wanted& wanted) {
  FileSelector selector;
  selector.base_dir = directory;
  selector.allow_not_found = true;
  selector.recursive = depth > 0;
  selector.max_recursion = depth;
  auto infos = value_of(place.system->GetFileInfo(selector), place.origin + directory);
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.path() < b.path(); });
  std::vector<File> found;
  for (const FileInfo& info : infos)
    if (info.type() == FileType::File && wanted(info.path()))
      found.push_back({place.system, info.path(), info.size(), place.origin});
  return found;
}

std::vector<File> files_of_pattern(const Place& place) {
  const std::string& pattern = place.path;
  // Everything below the last directory whose name is plain, as deep as the pattern goes.
  const auto slash = pattern.rfind('/', pattern.find_first_of("*?["));
  const auto begin = slash == std::string::npos ? 0 : slash + 1;
  const std::string directory = slash == 0 ? "/" : pattern.substr(0, begin > 0 ? begin - 1 : 0);
  const auto depth = pattern.find("**") != std::string::npos
                         ? INT32_MAX
                         : static_cast<std::int32_t>(
                               std::count(pattern.begin() + static_cast<std::ptrdiff_t>(begin), pattern.end(), '/'));
  return files_below(place, directory, depth, [&](const std::string& path) { return matches(pattern, path); });
}

std::vector<File> files_of_directory(const Place& place, const std::vector<std::string>& extensions) {
  std::string directory = place.path;
  while (directory.ends_with('/')) directory.pop_back();
  const std::size_t length = directory.size() + 1;
  return files_below(place, directory.empty() ? "/" : directory, INT32_MAX, [&](const std::string& path) {
    const bool named = extensions.empty() || std::any_of(extensions.begin(), extensions.end(), [&](const auto& each) {
                         return path.size() >= each.size() &&
                                ::strcasecmp(path.c_str() + path.size() - each.size(), each.c_str()) == 0;
                       });
    return named && !is_hidden(std::string_view(path).substr(length));
  });
}

/// The files that one path names, or why there is none.
std::vector<File> files_of(const Place& place, const FileOptions& options, std::string& why) {
  std::string plain = place.path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  const auto info = value_of(place.system->GetFileInfo(plain), place.origin + place.path);
  if (info.type() == FileType::File) return {{place.system, plain, info.size(), place.origin}};
  if (info.type() == FileType::Directory) {
    why = "the directory has no files" +
          (options.extensions.empty() ? "" : " that end with " + joined(options.extensions, ", "));
    return files_of_directory(place, options.extensions);
  }
  if (is_pattern(place.path)) {
    why = "no file matches the pattern";
    return files_of_pattern(place);
  }
  why = "there is no such file or directory";
  return {};
}

}  // namespace

std::string_view File::name() const { return std::string_view(path).substr(path.rfind('/') + 1); }

std::shared_ptr<arrow::io::RandomAccessFile> File::open() const {
  FileInfo info(path, FileType::File);
  info.set_size(size);  // so that nobody has to ask for it again
  return value_of(system->OpenInputFile(info), shown());
}

std::shared_ptr<arrow::Buffer> File::read(std::int64_t begin, std::int64_t end) const {
  auto buffer = value_of(open()->ReadAt(begin, end - begin), shown());
  if (buffer->size() != end - begin)
    fail(shown(), "has fewer bytes than before: it must not change while the data set is used");
  return buffer;
}

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  std::string_view rest = pattern;
  const std::string first(cut_component(rest));
  if (first == "**") {
    if (matches(rest, path)) return true;
    if (path.empty()) return false;
    cut_component(path);
    return matches(pattern, path);
  }
  if (path.empty()) return false;
  const std::string part(cut_component(path));
  return ::fnmatch(first.c_str(), part.c_str(), FNM_PERIOD) == 0 && rest.empty() == path.empty() &&
         (rest.empty() || matches(rest, path));
}

std::vector<File> find_files(const std::vector<std::string>& paths, const FileOptions& options) {
  if (paths.empty()) throw ConfigError("[data] no paths are given; name a file, a directory or a pattern");
  FileSystems systems;
  std::vector<File> files;
  std::string first_why;
  for (const std::string& path : paths) {
    if (path.empty()) throw ConfigError("[data] a path is empty; name a file, a directory or a pattern");
    Place place;
    if (options.system) {
      const auto mark = path.find("://");
      place = {options.system, mark == std::string::npos ? path : path.substr(mark + 3), ""};
    } else {
      place = systems.place_of(normal_path(path));
    }
    std::string why;
    const auto found = files_of(place, options, why);
    if (found.empty() && !options.ignore_missing_paths) fail(path, why);
    if (found.empty() && first_why.empty()) first_why = path + ": " + why;
    files.insert(files.end(), found.begin(), found.end());
  }
  if (files.empty()) throw StorageError("[data] " + first_why);
  return files;
}

std::string identity_of(const std::vector<File>& files) {
  std::string text;
  for (const File& file : files) text += "\n" + std::string(file.name()) + " " + std::to_string(file.size);
  return text;
}

}  // namespace lockstep::data
