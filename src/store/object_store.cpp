#include "store/object_store.h"

#include <lockstep/error.h>

#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "store/frames.h"
#include "store/store_program.h"

namespace lockstep::store {
namespace {

/// A program that dies so often during one operation dies of that operation.
constexpr int kMostDeaths = 10;

Value named(const std::vector<std::string>& names) {
  Value list = Value::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

template <class T>
T field(const Value& reply, const char* name) {
  const auto found = reply.find(name);
  if (found == reply.end()) throw StorageError("[storage] an answer of lockstep-store has no " + in_quotes(name));
  return read_as_written("an answer of lockstep-store", [&] { return found->template get<T>(); });
}

}  // namespace

Value ObjectStore::call(Value request) {
  request["patience"] = patience_;
  std::string lost;
  for (int death = 0; death < kMostDeaths; ++death) {
    if (!socket_) socket_ = connect_to_store();
    try {
      send_frame(socket_.get(), request);
      if (auto reply = receive_frame(socket_.get())) {
        if (const auto error = reply->find("error"); error != reply->end() && error->is_string())
          throw StorageError(error->get<std::string>());
        return *std::move(reply);
      }
      lost = "lockstep-store ended";
    } catch (const StorageError& error) {
      const std::string what = error.what();
      if (!what.starts_with("[storage] lockstep-store: ")) throw;
      lost = what;
    }
    socket_.reset();
    log_debug(lost + "; it is started again");
  }
  const std::string words = last_words_of_store();
  throw StorageError("[storage] lockstep-store ended " + std::to_string(kMostDeaths) + " times during " +
                     in_quotes(request["op"].get<std::string>()) + (words.empty() ? "" : ": " + words));
}

void ObjectStore::check(const Address& address) { call({{"op", "check"}, {"at", address.text()}}); }

std::vector<RemoteEntry> ObjectStore::list(const Address& address, bool recursive) {
  const Value reply = call({{"op", "list"}, {"at", address.text()}, {"recursive", recursive}});
  std::vector<RemoteEntry> entries;
  for (const Value& each : field<Value>(reply, "entries"))
    entries.push_back({field<std::string>(each, "name"), field<std::uint64_t>(each, "size"), field<bool>(each, "dir")});
  return entries;
}

void ObjectStore::put_files(const std::filesystem::path& from, const Address& to,
                            const std::vector<std::string>& names) {
  if (names.empty()) return;
  call({{"op", "put_files"}, {"from", from.native()}, {"at", to.text()}, {"names", named(names)}});
}

std::vector<std::string> ObjectStore::get_files(const Address& from, const std::filesystem::path& to,
                                                const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const Value reply = call({{"op", "get_files"}, {"to", to.native()}, {"at", from.text()}, {"names", named(names)}});
  return field<std::vector<std::string>>(reply, "missing");
}

void ObjectStore::put_checkpoint(const std::filesystem::path& from, const Address& to) {
  call({{"op", "put_checkpoint"}, {"from", from.native()}, {"at", to.text()}});
}

bool ObjectStore::get_checkpoint(const Address& from, const std::filesystem::path& to) {
  return field<bool>(call({{"op", "get_checkpoint"}, {"to", to.native()}, {"at", from.text()}}), "found");
}

void ObjectStore::remove_checkpoint(const Address& address) {
  call({{"op", "remove_checkpoint"}, {"at", address.text()}});
}

std::pair<int, int> ObjectStore::clean(const Address& run) {
  const Value reply = call({{"op", "clean"}, {"at", run.text()}});
  return {field<int>(reply, "checkpoints"), field<int>(reply, "uploads")};
}

}  // namespace lockstep::store
