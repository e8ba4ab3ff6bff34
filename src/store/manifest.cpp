#include "store/manifest.h"

#include <lockstep/error.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "store/data_json.h"
#include "store/tree.h"

namespace lockstep::store {
namespace {

[[noreturn]] void refuse(std::string_view where, const std::string& what) {
  throw StorageError("[checkpoint] " + std::string(where) + " is not a valid manifest: " + what);
}

const Value& field(const Value& object, const char* name, std::string_view where) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(where, std::string(name) + " is missing");
  return *found;
}

std::int64_t whole_number(const Value& value, const char* name, std::int64_t highest, std::string_view where) {
  if (!value.is_number_integer()) refuse(where, std::string(name) + " is not a whole number");
  const bool too_high = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(highest);
  if (too_high || value.get<std::int64_t>() < 0) refuse(where, std::string(name) + " is out of range");
  return value.get<std::int64_t>();
}

int small_number(const Value& value, const char* name, std::string_view where) {
  return static_cast<int>(whole_number(value, name, std::numeric_limits<int>::max(), where));
}

FileEntry file_entry(const Value& value, std::string_view where) {
  if (!value.is_object()) refuse(where, "an entry of files is not an object");
  FileEntry entry;
  const Value& name = field(value, "name", where);
  if (!name.is_string()) refuse(where, "a file's name is not a string");
  entry.name = name.get<std::string>();
  if (const auto problem = file_name_problem(entry.name); !problem.empty())
    refuse(where, "the file name " + in_quotes(entry.name) + " " + problem);
  entry.size = whole_number(field(value, "size", where), "size", std::numeric_limits<std::int64_t>::max(), where);
  const Value& hash = field(value, "xxh3_128", where);
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (hash.is_string()) entry.xxh3_128 = hash.get<std::string>();
  if (entry.xxh3_128.size() != 32 || !std::all_of(entry.xxh3_128.begin(), entry.xxh3_128.end(), is_digit))
    refuse(where, "xxh3_128 of " + in_quotes(entry.name) + " is not 32 hexadecimal digits");
  return entry;
}

}  // namespace

std::int64_t Manifest::size() const {
  const auto add = [](std::int64_t sum, const FileEntry& file) { return sum + file.size; };
  return std::accumulate(files.begin(), files.end(), std::int64_t{0}, add);
}

Value to_value(const Manifest& manifest) {
  Value files = Value::array();
  for (const auto& entry : manifest.files)
    files.push_back(Value{{"name", entry.name}, {"size", entry.size}, {"xxh3_128", entry.xxh3_128}});
  Value value = Value::object();
  value["version"] = manifest.version;
  value["seq"] = manifest.seq;
  value["attempt"] = manifest.attempt;
  value["world_size"] = manifest.world_size;
  value["ranks"] = manifest.ranks;
  value["created"] = manifest.created;
  value["metrics"] = manifest.metrics;
  value["files"] = std::move(files);
  if (manifest.validated) value["validated"] = true;
  return value;
}

std::string to_text(const Manifest& manifest) {
  std::string text = to_pretty_json(to_value(manifest));
  (void)parse_manifest(text, "the manifest of checkpoint " + std::to_string(manifest.seq));
  return text;
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const Value value = parse_json(text, where);
  if (!value.is_object()) refuse(where, "it is not an object");
  Manifest manifest;
  manifest.version = small_number(field(value, "version", where), "version", where);
  if (manifest.version != 1)
    refuse(where, "its version is " + std::to_string(manifest.version) + ", this Lockstep reads version 1");
  manifest.seq = small_number(field(value, "seq", where), "seq", where);
  manifest.attempt = small_number(field(value, "attempt", where), "attempt", where);
  manifest.world_size = small_number(field(value, "world_size", where), "world_size", where);
  const Value& ranks = field(value, "ranks", where);
  if (!ranks.is_array()) refuse(where, "ranks is not a list");
  for (const auto& rank : ranks) manifest.ranks.push_back(small_number(rank, "a rank", where));
  const Value& created = field(value, "created", where);
  if (!created.is_number()) refuse(where, "created is not a number");
  manifest.created = created.get<double>();
  manifest.metrics = field(value, "metrics", where);
  manifest.validated = value.contains("validated") && value["validated"] == true;
  const Value& files = field(value, "files", where);
  if (!files.is_array()) refuse(where, "files is not a list");
  std::set<std::string> names;
  for (const auto& item : files) {
    manifest.files.push_back(file_entry(item, where));
    const auto& name = manifest.files.back().name;
    if (!names.insert(name).second) refuse(where, "the file name " + in_quotes(name) + " occurs twice");
  }
  return manifest;
}

Manifest read_manifest(sys::Files& files, const std::filesystem::path& directory) {
  const auto path = directory / kManifestName;
  return parse_manifest(files.read_text(path), path.native());
}

std::vector<FileEntry> merge_parts(const std::vector<RankFiles>& parts) {
  std::map<std::string, std::pair<int, FileEntry>> merged;
  for (const auto& part : parts) {
    for (const auto& entry : part.files) {
      const auto [place, is_new] = merged.try_emplace(entry.name, part.rank, entry);
      if (!is_new)
        throw ConfigError("[checkpoint] ranks " + listed({place->second.first, part.rank}) + " both wrote " +
                          in_quotes(entry.name) + "; give each rank's files names of their own, for example " +
                          in_quotes("rank_" + std::to_string(part.rank) + "/" + entry.name));
    }
  }
  std::vector<FileEntry> files;
  for (auto& [name, owner] : merged) {
    if (owner.second.xxh3_128.empty())
      throw StorageError("[checkpoint] rank " + std::to_string(owner.first) + " found " + in_quotes(name) +
                         " there already, and no rank wrote it; the checkpoint is not committed");
    files.push_back(std::move(owner.second));
  }
  return files;
}

}  // namespace lockstep::store
