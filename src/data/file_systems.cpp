#include "data/file_systems.h"

#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/localfs.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "base/s3_query.h"
#include "base/text.h"
#include "data/status.h"

namespace arrow::fs {
/// Of arrow/filesystem/s3fs.h. Null if S3 is a library of its own, whose finalizer EnsureFinalized() knows.
[[gnu::weak]] Status EnsureS3Finalized();
}  // namespace arrow::fs

namespace lockstep::data {
namespace {

/// The folder that Arrow's library lies in; another library of Arrow may lie beside it.
std::filesystem::path folder_of_arrow(std::string& version) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&arrow::fs::EnsureFinalized), &info) == 0) return {};
  const std::filesystem::path library(info.dli_fname);
  const std::string name = library.filename().string();
  version = name.substr(name.rfind(".so") == std::string::npos ? name.size() : name.rfind(".so"));
  return library.parent_path();
}

/// Before the first use of S3. Versions of Arrow differ in whether it is a library of its own.
void prepare_s3() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::string version;
    const auto folder = folder_of_arrow(version);
    if (const auto library = folder / ("libarrow_s3" + version); std::filesystem::exists(library))
      check(arrow::fs::LoadFileSystemFactories(library.c_str()), library.string());
    // Without it the process would abort when it exits. A child that was forked has no threads of S3 to end.
    static const ::pid_t owner = ::getpid();
    std::atexit([] {
      if (::getpid() != owner) return;
      if (arrow::fs::EnsureS3Finalized) (void)arrow::fs::EnsureS3Finalized();
      arrow::fs::EnsureFinalized();
    });
  });
}

/// Where the path of a URI begins.
Place root_of(const std::string& scheme, const std::string& authority, std::string query, const std::string& path) {
  if (scheme.empty()) return {std::make_shared<arrow::fs::LocalFileSystem>(), "", ""};
  if (scheme == "s3") {
    if (authority.empty()) throw ConfigError("[data] " + in_quotes(path) + " names no bucket");
    prepare_s3();
    query = s3_query_of_environment(query);
  }
  std::string root;
  const auto system = arrow::fs::FileSystemFromUri(
      scheme + "://" + (authority.empty() ? "/" : authority) + (query.empty() ? "" : "?" + query), &root);
  if (!system.ok())
    throw ConfigError("[data] the path is " + in_quotes(path) +
                      ", which no file system can read: " + system.status().message());
  while (root.ends_with('/')) root.pop_back();
  return {*system, root, scheme == "file" ? "" : scheme + "://"};
}

}  // namespace

Place FileSystems::place_of(const std::string& path) {
  const auto mark = path.find("://");
  const std::string scheme = mark == std::string::npos ? "" : path.substr(0, mark);
  std::string rest = mark == std::string::npos ? path : path.substr(mark + 3), authority, query;
  if (!scheme.empty()) {
    // A question mark may also be part of a pattern.
    if (const auto asked = rest.rfind('?'); asked != std::string::npos && rest.find('=', asked) != std::string::npos) {
      query = rest.substr(asked + 1);
      rest.resize(asked);
    }
    const auto slash = std::min(rest.find('/'), rest.size());
    authority = rest.substr(0, slash);
    rest = rest.substr(std::min(slash + 1, rest.size()));
  }
  const std::string uri = scheme + "://" + (authority.empty() ? "/" : authority) + (query.empty() ? "" : "?" + query);
  auto known = roots_.find(uri);
  if (known == roots_.end()) known = roots_.emplace(uri, root_of(scheme, authority, query, path)).first;
  const Place& root = known->second;
  return {root.system, scheme.empty() ? rest : root.path + "/" + rest, root.origin};
}

}  // namespace lockstep::data
