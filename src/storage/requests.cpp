#include "storage/requests.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "storage/checkpoints.h"
#include "storage/objects.h"
#include "storage/parallel.h"
#include "sys/files.h"

namespace lockstep::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmallFilesAtOnce = 8;
constexpr double kLongestPatience = 86400;

/// A request and its fields. All methods throw StorageError for a field that is missing or has another type.
class Request {
 public:
  Request(const Value& value, Places& places) : value_(value), places_(places) {
    const double patience = field<double>("patience");
    deadline_ = now() + ticks(Seconds(std::isfinite(patience) ? std::clamp(patience, 0.0, kLongestPatience) : 0.0));
  }

  template <class T>
  T field(const char* name) const {
    const auto found = value_.find(name);
    if (found == value_.end()) throw StorageError("[storage] a request has no field " + in_quotes(name));
    return read_as_written("a request", [&] { return found->template get<T>(); });
  }

  std::string op() const { return field<std::string>("op"); }
  Place at() const { return places_.at(store::Address::parse(field<std::string>("at"))); }
  fs::path local(const char* name) const {
    fs::path path = field<std::string>(name);
    if (!path.is_absolute()) throw StorageError("[storage] a request has a relative path " + in_quotes(path.native()));
    return path;
  }
  std::vector<std::string> names() const { return field<std::vector<std::string>>("names"); }
  Instant deadline() const { return deadline_; }

 private:
  const Value& value_;
  Places& places_;
  Instant deadline_;
};

Value done() { return Value{{"done", true}}; }

Value check_place(const Request& request) {
  const Place place = request.at();
  Place bucket = place;
  // With objects, only the bucket can be missing; directories are made.
  if (place.has_objects) bucket = {place.system, place.path.substr(0, place.path.find('/')), place.shown, true};
  check_reachable(bucket, request.deadline());
  return done();
}

Value list_entries(const Request& request) {
  const Place place = request.at();
  Value entries = Value::array();
  for (const auto& each : list(place, request.field<bool>("recursive"), request.deadline()))
    entries.push_back({{"name", each.name}, {"size", each.size}, {"dir", each.is_directory}});
  return Value{{"entries", std::move(entries)}};
}

Value put_files(const Request& request) {
  const Place to = request.at();
  const fs::path from = request.local("from");
  const auto names = request.names();
  in_parallel(names.size(), kSmallFilesAtOnce, [&](std::size_t number) {
    const fs::path file = from / names[number];
    if (sys::files().info(file).kind != sys::FileKind::file) return;
    put_file(file, to / names[number], request.deadline());
  });
  return done();
}

Value get_files(const Request& request) {
  const Place from = request.at();
  const fs::path to = request.local("to");
  const auto names = request.names();
  std::vector<char> found(names.size());
  in_parallel(names.size(), kSmallFilesAtOnce, [&](std::size_t number) {
    const fs::path file = to / names[number];
    sys::files().make_directories(file.parent_path());
    found[number] = get_file(from / names[number], file, request.deadline());
  });
  Value missing = Value::array();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (found[i] == 0) missing.push_back(names[i]);
  return Value{{"missing", std::move(missing)}};
}

Value put_one_checkpoint(const Request& request) {
  const fs::path from = request.local("from");
  put_checkpoint(from, request.at(), request.deadline());
  return done();
}

Value get_one_checkpoint(const Request& request) {
  const fs::path to = request.local("to");
  return Value{{"found", get_checkpoint(request.at(), to, request.deadline())}};
}

Value remove_one_checkpoint(const Request& request) {
  remove_checkpoint(request.at(), request.deadline());
  return done();
}

Value clean(const Request& request) {
  const int removed = remove_unfinished(request.at(), request.deadline());
  return Value{{"checkpoints", removed}, {"uploads", 0}};
}

Value answer_or_throw(const Request& request) {
  static const std::map<std::string, Value (*)(const Request&)> kOperations{
      {"check", check_place},
      {"list", list_entries},
      {"put_files", put_files},
      {"get_files", get_files},
      {"put_checkpoint", put_one_checkpoint},
      {"get_checkpoint", get_one_checkpoint},
      {"remove_checkpoint", remove_one_checkpoint},
      {"clean", clean},
  };
  const auto found = kOperations.find(request.op());
  if (found == kOperations.end()) throw StorageError("[storage] there is no operation " + in_quotes(request.op()));
  return found->second(request);
}

}  // namespace

Value answer(const Value& request, Places& places) {
  try {
    return answer_or_throw(Request(request, places));
  } catch (const std::exception& error) {
    return Value{{"error", error.what()}};
  }
}

}  // namespace lockstep::storage
