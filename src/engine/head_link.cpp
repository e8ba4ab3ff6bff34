#include "engine/head_link.h"

#include <lockstep/error.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::engine::head_link {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string hex_of(const Bytes& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Bytes bytes_of(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

void send_json(int socket, const Value& value) {
  const std::string text = to_json(value);
  sys::send_with_fds(socket, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, {});
}

/// Returns read(packet), or nothing at the end.
template <class Read>
auto receive(int socket, Read&& read) -> std::optional<decltype(read(std::declval<const Value&>()))> {
  const auto packet = sys::receive_with_fds(socket).first;
  if (packet.empty()) return std::nullopt;
  try {
    return read(parse_json({reinterpret_cast<const char*>(packet.data()), packet.size()}, "a packet of the engine"));
  } catch (const std::exception& error) {
    throw EngineError("[engine] engine and head agent do not understand each other: " + std::string(error.what()));
  }
}

Value to_value(const Listening& notice) { return {{"is", "listening"}, {"port", notice.port}}; }
Value to_value(const Failed& notice) { return {{"is", "failed"}, {"why", notice.why}}; }
Value to_value(const Lost& notice) { return {{"is", "lost"}, {"node", notice.node}, {"why", notice.why}}; }
Value to_value(const TurnedAway& notice) { return {{"is", "turned_away"}, {"name", notice.name}, {"why", notice.why}}; }
Value to_value(const Joined& notice) {
  return {{"is", "joined"},
          {"node", notice.node},
          {"name", notice.name},
          {"host", notice.host},
          {"address", notice.address},
          {"head_address", notice.head_address},
          {"resources", notice.resources},
          {"gpu_ids", notice.gpu_ids},
          {"interfaces", notice.interfaces}};
}

Notice notice_of(const Value& value) {
  const auto is = value.at("is").get<std::string>();
  const auto text = [&](const char* key) { return value.at(key).get<std::string>(); };
  if (is == "listening") return Listening{value.at("port").get<int>()};
  if (is == "failed") return Failed{text("why")};
  if (is == "lost") return Lost{value.at("node").get<int>(), text("why")};
  if (is == "turned_away") return TurnedAway{text("name"), text("why")};
  if (is != "joined") throw EngineError("there is no notice " + in_quotes(is));
  return Joined{value.at("node").get<int>(),
                text("name"),
                text("host"),
                text("address"),
                text("head_address"),
                value.at("resources").get<std::map<std::string, double>>(),
                value.at("gpu_ids").get<std::vector<std::string>>(),
                value.at("interfaces").get<std::map<std::string, std::string>>()};
}

}  // namespace

void send(int socket, const Listen& listen) {
  send_json(socket, {{"address", listen.address},
                     {"port", listen.port},
                     {"secret", hex_of(listen.secret)},
                     {"node_timeout", listen.node_timeout.count()},
                     {"names", listen.names}});
}

void send(int socket, const Notice& notice) {
  send_json(socket, std::visit([](const auto& each) { return to_value(each); }, notice));
}

std::optional<Listen> receive_listen(int socket) {
  return receive(socket, [](const Value& value) {
    return Listen{value.at("address").get<std::string>(), value.at("port").get<int>(),
                  bytes_of(value.at("secret").get<std::string>()), Seconds(value.at("node_timeout").get<double>()),
                  value.at("names").get<std::vector<std::string>>()};
  });
}

std::optional<Notice> receive_notice(int socket) { return receive(socket, notice_of); }

}  // namespace lockstep::engine::head_link
