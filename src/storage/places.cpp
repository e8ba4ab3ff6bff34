#include "storage/places.h"

#include <arrow/filesystem/filesystem.h>
#include <arrow/status.h>
#include <dlfcn.h>
#include <lockstep/error.h>

#include <filesystem>

#include "base/s3_query.h"
#include "base/text.h"

namespace lockstep::storage {
namespace {

/// Versions of Arrow differ in whether S3 is a library of its own, which lies beside the other.
void load_s3() {
  static std::once_flag once;
  std::call_once(once, [] {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&arrow::fs::EnsureFinalized), &info) == 0) return;
    const std::filesystem::path library(info.dli_fname);
    const std::string name = library.filename().string();
    const auto version = name.find(".so");
    if (version == std::string::npos) return;
    const auto s3 = library.parent_path() / ("libarrow_s3" + name.substr(version));
    if (std::filesystem::exists(s3)) check(arrow::fs::LoadFileSystemFactories(s3.c_str()));
  });
}

bool has_option(const std::string& query, const std::string& name) {
  return ("&" + query).find("&" + name + "=") != std::string::npos;
}

/// The bucket's URI for Arrow.
std::string uri_of(const store::Address& bucket) {
  std::string query = bucket.query;
  if (bucket.scheme == "s3") {
    load_s3();
    query = s3_query_of_environment(query);
    // Small objects are put by one request instead of a multipart upload.
    if (!has_option(query, "allow_delayed_open"))
      query += (query.empty() ? "" : "&") + std::string("allow_delayed_open=true");
  }
  const std::string scheme = bucket.scheme == "gcs" ? "gs" : bucket.scheme;
  return scheme + "://" + bucket.authority + (bucket.authority.empty() ? "/" : "") + (query.empty() ? "" : "?" + query);
}

/// Some messages have a line for each place that was searched.
std::string first_line(const arrow::Status& status) {
  const std::string& text = status.message();
  return text.substr(0, text.find('\n'));
}

}  // namespace

void check(const arrow::Status& status) {
  if (!status.ok()) throw StorageError(status.message());
}

Place Places::at(const store::Address& address) {
  store::Address bucket = address;
  bucket.path.clear();
  const std::lock_guard lock(mutex_);
  auto known = roots_.find(bucket.text());
  if (known == roots_.end()) {
    Root root;
    const auto system = arrow::fs::FileSystemFromUri(uri_of(bucket), &root.path);
    if (!system.ok())
      throw StorageError(
          "[storage] " + in_quotes(bucket.text()) + " cannot be used: " + first_line(system.status()) +
          (bucket.scheme == "hdfs" ? "; install Java and Hadoop, and set JAVA_HOME, HADOOP_HOME and CLASSPATH" : ""));
    root.system = *system;
    while (root.path.ends_with('/')) root.path.pop_back();
    known = roots_.emplace(bucket.text(), std::move(root)).first;
  }
  Place place{known->second.system, known->second.path, bucket,
              bucket.scheme == "s3" || bucket.scheme.starts_with("g")};
  for (const std::string& name : address.path) place = place / name;
  return place;
}

Place operator/(const Place& place, const std::string& names) {
  return {place.system, place.path + "/" + names, place.shown / names, place.has_objects};
}

}  // namespace lockstep::storage
