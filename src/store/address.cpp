#include "store/address.h"

#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/json.h"
#include "base/s3_query.h"
#include "base/text.h"
#include "store/hash.h"
#include "sys/files.h"
#include "sys/private_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kSchemes{"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "s3a"};
/// In each bucket's directory of the cache: its address.
constexpr std::string_view kBucketFile = ".lockstep-bucket.json";

[[noreturn]] void refuse_address(std::string_view text, const std::string& why) {
  throw ConfigError("[storage] the address is " + in_quotes(text) + "; " + why);
}

void append_names(std::vector<std::string>& path, std::string_view names, std::string_view whole) {
  while (!names.empty()) {
    const auto slash = std::min(names.find('/'), names.size());
    const std::string_view name = names.substr(0, slash);
    names.remove_prefix(std::min(slash + 1, names.size()));
    if (name.empty()) continue;
    if (name == "." || name == "..") refuse_address(whole, "its path must not have the parts . and ..");
    if (name.size() > 255) refuse_address(whole, "a part of its path is longer than 255 bytes");
    for (std::size_t i = 0; i < name.size(); ++i)
      if (control_length(name, i) > 0) refuse_address(whole, "it must not have control characters");
    path.emplace_back(name);
  }
}

fs::path cache_root() {
  if (const char* given = std::getenv("LOCKSTEP_CACHE_PATH"); given != nullptr && *given != '\0')
    return fs::absolute(given).lexically_normal();
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    throw ConfigError("[storage] HOME is not set; set LOCKSTEP_CACHE_PATH to a directory for copies of remote runs");
  return fs::path(home) / ".cache" / "lockstep" / "storage";
}

/// Names of one directory for each place that the same address may mean: servers of other endpoints are other stores.
std::string bucket_directory(const Address& bucket) {
  std::string identity = bucket.text();
  if (bucket.scheme == "s3") identity += "\n" + s3_query_of_environment(bucket.query);
  const std::string hash = hash_of(std::as_bytes(std::span(identity))).substr(0, 12);
  std::string readable = bucket.scheme + "-" + bucket.authority;
  std::replace_if(
      readable.begin(), readable.end(),
      [](unsigned char c) { return !(std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'); }, '-');
  return readable.substr(0, 80) + "-" + hash;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

fs::path path_of_file_address(std::string_view text) {
  std::string_view rest = text.substr(std::string_view("file://").size());
  if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
  if (!rest.starts_with('/')) refuse_address(text, "a file:// address must be file:///PATH");
  std::string path;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool coded =
        rest[i] == '%' && i + 2 < rest.size() && hex_digit(rest[i + 1]) >= 0 && hex_digit(rest[i + 2]) >= 0;
    path += coded ? static_cast<char>(hex_digit(rest[i + 1]) * 16 + hex_digit(rest[i + 2])) : rest[i];
    if (coded) i += 2;
  }
  return path;
}

}  // namespace

bool is_address(std::string_view text) {
  return text.find("://") != std::string_view::npos && !text.starts_with("file://");
}

Address Address::parse(std::string_view text) {
  const auto mark = text.find("://");
  if (mark == std::string_view::npos) refuse_address(text, "it must be SCHEME://BUCKET/PATH");
  Address address;
  address.scheme = text.substr(0, mark);
  if (std::ranges::find(kSchemes, address.scheme) == kSchemes.end())
    refuse_address(text, "there are s3://, gs://, abfs://, hdfs:// and file://");
  if (address.scheme == "s3a") address.scheme = "s3";
  std::string_view rest = text.substr(mark + 3);
  if (const auto asked = rest.find('?'); asked != std::string_view::npos) {
    address.query = rest.substr(asked + 1);
    rest = rest.substr(0, asked);
  }
  const auto slash = std::min(rest.find('/'), rest.size());
  address.authority = rest.substr(0, slash);
  const auto at = address.authority.find('@');
  if (at != std::string::npos && address.authority.substr(0, at).find(':') != std::string::npos)
    throw ConfigError(
        "[storage] the address has a password in it, which would be stored; give credentials as the tools of "
        "the store do, for example by AWS_PROFILE or ~/.aws/credentials");
  if (("&" + address.query).find("&secret_key=") != std::string::npos)
    throw ConfigError(
        "[storage] the address has a secret_key in it, which would be stored; give credentials as the tools "
        "of the store do, for example by AWS_PROFILE or ~/.aws/credentials");
  const bool has_host = address.scheme == "hdfs" || address.scheme == "viewfs";
  if (address.authority.empty() && !has_host) refuse_address(text, "it names no bucket");
  append_names(address.path, rest.substr(slash), text);
  return address;
}

std::string Address::text() const {
  std::string text = scheme + "://" + authority;
  for (const std::string& name : path) text += "/" + name;
  return query.empty() ? text : text + "?" + query;
}

Address Address::operator/(std::string_view names) const {
  Address below = *this;
  append_names(below.path, names, names);
  return below;
}

std::optional<Address> Address::parent() const {
  if (path.empty()) return std::nullopt;
  Address above = *this;
  above.path.pop_back();
  return above;
}

fs::path cached(const Address& address) {
  Address bucket = address;
  bucket.path.clear();
  const fs::path root = cache_root() / bucket_directory(bucket);
  sys::Files& files = sys::files();
  const auto info = files.info(root, false);
  if (info.kind == sys::FileKind::none) files.make_directories(root);
  sys::check_private(files.info(root, false), root);
  if (files.info(root / kBucketFile).kind == sys::FileKind::none)
    files.replace_file(root / kBucketFile, to_json(Value{{"version", 1}, {"address", bucket.text()}}) + "\n");
  fs::path place = root;
  for (const std::string& name : address.path) place /= name;
  return place;
}

std::optional<Address> address_of(const fs::path& path) {
  fs::path root;
  try {
    root = cache_root();
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  const fs::path below = fs::absolute(path).lexically_normal().lexically_relative(root);
  if (below.empty() || *below.begin() == ".." || *below.begin() == ".") return std::nullopt;
  auto part = below.begin();
  const fs::path file = root / *part / kBucketFile;
  if (sys::files().info(file).kind != sys::FileKind::file) return std::nullopt;
  const Value stored = parse_json(sys::files().read_text(file), in_quotes(file.native()));
  const auto text = stored.find("address");
  if (text == stored.end() || !text->is_string()) return std::nullopt;
  Address address = Address::parse(text->get<std::string>());
  for (++part; part != below.end(); ++part)
    if (!part->empty()) address.path.push_back(part->native());
  return address;
}

fs::path local_path(const fs::path& given) {
  const std::string& text = given.native();
  if (is_address(text)) return cached(Address::parse(text));
  return text.starts_with("file://") ? path_of_file_address(text) : given;
}

std::string shown(const fs::path& path) {
  const auto address = address_of(path);
  return address ? address->text() : path.native();
}

}  // namespace lockstep::store
