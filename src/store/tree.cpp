#include "store/tree.h"

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using sys::FileKind;

bool is_utf8(std::string_view text) {
  try {
    (void)Value(std::string(text)).dump();
    return true;
  } catch (const Value::exception&) {
    return false;
  }
}

class Walk {
 public:
  Walk(sys::Files& files, Links links) : files_(files), links_(links) {}

  void enter(const fs::path& real, const std::string& prefix) {
    if (std::find(open_.begin(), open_.end(), real) != open_.end())
      throw StorageError("[checkpoint] the links below " + in_quotes(open_.front().native()) + " form a circle at " +
                         in_quotes(prefix) + "; remove that link");
    open_.push_back(real);
    for (const auto& item : files_.list(real)) visit(real / item.name, prefix + item.name, item.kind);
    open_.pop_back();
  }

  std::vector<TreeFile> found;

 private:
  void visit(const fs::path& path, const std::string& name, FileKind kind) {
    if (kind == FileKind::symlink && links_ == Links::follow_inside) return follow(path, name);
    if (kind == FileKind::directory) return enter(path, name + "/");
    if (kind == FileKind::other && links_ == Links::follow_inside)
      throw StorageError("[checkpoint] " + in_quotes(path.native()) +
                         " is neither a file nor a directory; a checkpoint holds files only");
    found.push_back({name, path, files_.info(path, false).size, kind});
  }

  void follow(const fs::path& link, const std::string& name) {
    const fs::path& root = open_.front();
    std::error_code error;
    const fs::path target = fs::canonical(link, error);
    if (error) sys::throw_file_error("follow the link", link, error.value());
    if (std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first != root.end())
      throw StorageError("[checkpoint] " + in_quotes(link.native()) + " is a link to " + in_quotes(target.native()) +
                         ", outside the checkpoint's directory; copy the file there instead");
    const auto kind = files_.info(target).kind;
    visit(target, name, kind);
  }

  sys::Files& files_;
  const Links links_;
  std::vector<fs::path> open_;  ///< the directories from the root to here, links resolved
};

}  // namespace

std::vector<TreeFile> list_tree(sys::Files& files, const fs::path& root, Links links) {
  std::error_code error;
  // Only followed links need the resolved path.
  const fs::path start = links == Links::follow_inside ? fs::canonical(root, error) : root;
  if (error) sys::throw_file_error("list", root, error.value());
  Walk walk(files, links);
  walk.enter(start, "");
  std::sort(walk.found.begin(), walk.found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return std::move(walk.found);
}

std::string file_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > 1024) return "is longer than 1024 bytes";
  if (name.front() == '/') return "is absolute";
  if (name == kManifestName) return "is Lockstep's own";
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 32 || c == 127) return "contains a control character";
  if (!is_utf8(name)) return "is not UTF-8";
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty()) return "has an empty component";
    if (part == "." || part == "..") return "contains " + in_quotes(part);
    if (part.size() > 255) return "has a component longer than 255 bytes";
    if (part.ends_with(".partial")) return "ends in .partial, which marks unfinished files";
    begin = end + 1;
  }
  return "";
}

}  // namespace lockstep::store
