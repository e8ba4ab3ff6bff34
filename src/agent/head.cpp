#include "agent/head.h"

#include <arpa/inet.h>
#include <lockstep/error.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

namespace head_link = engine::head_link;

/// A connection that has not proved the secret and said hello by then is closed.
constexpr Seconds kHelloWithin{5.0};
/// If more than this many connections have not joined yet, the oldest is closed.
constexpr std::size_t kMostGuests = 128;
/// A refused agent has this long to read why.
constexpr Seconds kRefusedFor{2.0};
constexpr int kBacklog = 128;
constexpr std::size_t kLongestName = 200;
/// Refusals are logged at most this often, so that a flood of them fills no disk.
constexpr auto kTellsRefusals = 1s;

sockaddr_in address_of(const std::string& address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &result.sin_addr) != 1)
    throw EngineError("[agent] " + in_quotes(address) + " is not an IPv4 address");
  return result;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);
/// The address of one end of a connection: ::getsockname or ::getpeername.
std::pair<std::string, int> end_of(int socket, NameOf name_of) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  char text[INET_ADDRSTRLEN] = {};
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return {text, ntohs(address.sin_port)};
}

}  // namespace

Head::Head(Loop& loop, sys::Descriptor engine)
    : loop_(loop), engine_(std::move(engine)), engine_watch_(loop, engine_.get()) {
  engine_watch_.on_readable([this] { read_engine(); });
}

/// The engine is gone: so are all nodes.
void Head::shut() {
  engine_watch_.pause();
  listener_watch_ = {};
  listener_.reset();
  while (!guests_.empty()) drop(guests_.begin(), "");
  while (!nodes_.empty()) lose(nodes_.begin()->first, "the engine has ended it");
}

void Head::read_engine() {
  std::optional<head_link::Listen> given;
  try {
    given = head_link::receive_listen(engine_.get());
  } catch (const EngineError& error) {
    log_error(error.what());
  }
  if (!given) return shut();
  if (settings_) {
    settings_->names = std::move(given->names);
    return;
  }
  settings_ = std::move(given);
  try {
    listen(*settings_);
  } catch (const EngineError& error) {
    tell_engine(head_link::Failed{error.what()});
  }
}

void Head::listen(const head_link::Listen& settings) {
  const auto address = address_of(settings.address, settings.port);
  const std::string where = settings.address + ":" + std::to_string(settings.port);
  listener_ = sys::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (listener_) ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0)
    throw EngineError("[agent] cannot listen on " + where + ": " + std::strerror(errno) +
                      "; choose another port or address");
  listener_watch_ = Watch(loop_, listener_.get());
  listener_watch_.on_readable([this] { accept(); });
  tell_engine(head_link::Listening{end_of(listener_.get(), ::getsockname).second});
}

/// The engine may be busy for long, so the head must not wait until it reads.
void Head::tell_engine(head_link::Notice notice) {
  if (std::holds_alternative<head_link::TurnedAway>(notice) && !untold_.empty()) return;  // nobody depends on it
  untold_.push_back(std::move(notice));
  if (untold_.size() == 1) tell_untold();
}

void Head::tell_untold() {
  while (!untold_.empty()) {
    pollfd item{engine_.get(), POLLOUT, 0};
    if (::poll(&item, 1, 0) == 0) return engine_watch_.once_writable([this] { tell_untold(); });
    try {
      head_link::send(engine_.get(), untold_.front());
    } catch (const EngineError& error) {  // it is gone, which is noticed elsewhere
      log_debug(error.what());
    }
    untold_.pop_front();
  }
}

// ---------------------------------------------------------------- guests

void Head::accept() {
  sys::Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
    // Out of descriptors: free one that belongs to a guest, or the listener would be readable for ever.
    log_error(std::string("cannot accept a connection: ") + std::strerror(errno));
    if (!guests_.empty()) drop(guests_.begin(), "");
    return;
  }
  while (guests_.size() >= kMostGuests) drop(guests_.begin(), "too many connections that did not prove the secret");
  const std::string address = end_of(socket.get(), ::getpeername).first;
  take_in(std::move(socket), address);
}

void Head::take_in(sys::Descriptor socket, std::string address) {
  const std::string ours = end_of(socket.get(), ::getsockname).first;
  const auto guest = guests_.insert(guests_.end(), Guest{nullptr, std::move(address), ours, Timer(loop_)});
  PeerLink::Handlers handlers;
  handlers.proved = [] {};
  handlers.message = [this, guest](auto message) { on_hello(guest, message); };
  handlers.data = [this, guest](auto, auto) { drop(guest, "it sent something else than a hello"); };
  handlers.closed = [this, guest](const std::string& why) { drop(guest, why); };
  try {
    guest->link = std::make_unique<PeerLink>(loop_, std::move(socket), settings_->secret, TlsStream::Side::head,
                                             std::move(handlers));
  } catch (const EngineError& error) {
    return drop(guest, error.what());
  }
  guest->timer.set(kHelloWithin, [this, guest] { drop(guest, "it did not prove the secret in time"); });
}

void Head::on_hello(Guests::iterator guest, std::span<const std::uint8_t> message) {
  if (guest->refused) return;
  wire::Hello hello;
  try {
    auto given = wire::decode<wire::NodeToHead>(message);
    auto* found = std::get_if<wire::Hello>(&given);
    if (found == nullptr) return drop(guest, "its first message was not a hello");
    hello = std::move(*found);
  } catch (const wire::WireError& error) {
    return drop(guest, error.what());
  }
  if (const std::string why = objection_to(hello); !why.empty()) {
    tell_engine(head_link::TurnedAway{printable(hello.name.substr(0, kLongestName)), why});
    return refuse(guest, why);
  }
  admit(guest, hello);
}

/// Why the agent may not join; empty: it may.
std::string Head::objection_to(const wire::Hello& hello) const {
  const auto version = [](const std::string& ours, int wire) { return ours + " (wire " + std::to_string(wire) + ")"; };
  if (hello.version != lockstep::kVersion || hello.wire != wire::kVersion)
    return "the node has Lockstep " + version(printable(hello.version.substr(0, kLongestName)), hello.wire) +
           ", but the head has " + version(lockstep::kVersion, wire::kVersion) +
           "; install the same Lockstep on all nodes";
  if (hello.name.empty() || hello.name.size() > kLongestName || printable(hello.name) != hello.name)
    return "the node's name must have 1 to 200 characters, and no control characters; give another --name";
  if (std::ranges::any_of(nodes_, [&](const auto& each) { return each.second.name == hello.name; }))
    return "there is a node " + in_quotes(hello.name) + " already; give another --name";
  const auto& names = settings_->names;
  if (!names.empty() && std::ranges::find(names, hello.name) == names.end())
    return "this run has no node " + in_quotes(hello.name) + "; its nodes are " + joined(names, ", ");
  return "";
}

int Head::index_for(const std::string& name) {
  const auto& names = settings_->names;
  if (const auto found = std::ranges::find(names, name); found != names.end())
    return static_cast<int>(found - names.begin()) + 1;
  return next_node_++;
}

void Head::admit(Guests::iterator guest, const wire::Hello& hello) {
  const int index = index_for(hello.name);
  // The link stays, with its handlers: what they call is replaced.
  Node& node = nodes_.emplace(index, Node{hello.name, std::move(guest->link), Timer(loop_), {}}).first->second;
  const std::string address = guest->address, head_address = guest->head_address;
  guests_.erase(guest);
  PeerLink::Handlers handlers;
  handlers.message = [this, index](auto message) { on_message(index, message); };
  handlers.data = [this, index](auto stream, auto bytes) { on_data(index, stream, bytes); };
  handlers.closed = [this, index](const std::string& why) { lose(index, why); };
  node.link->replace(std::move(handlers));
  node.link->tell(wire::Welcome{index, settings_->node_timeout.count()});
  log_info("node " + hello.name + " has joined from " + address);
  tell_engine(head_link::Joined{index, hello.name, printable(hello.host), address, head_address, hello.resources,
                                hello.gpu_ids, hello.interfaces});
  watch_over(index);
}

void Head::refuse(Guests::iterator guest, const std::string& why) {
  note_refusal(guest->address, why);
  guest->refused = true;
  guest->link->tell(wire::Refused{why});
  guest->timer.set(kRefusedFor, [this, guest] { drop(guest, ""); });
}

void Head::drop(Guests::iterator guest, const std::string& why) {
  if (!why.empty() && !guest->refused) note_refusal(guest->address, why);
  bury(std::move(guest->link));
  guests_.erase(guest);
}

void Head::note_refusal(const std::string& who, const std::string& why) {
  if (now() - told_refusal_ < kTellsRefusals) {
    ++untold_refusals_;
    return;
  }
  told_refusal_ = now();
  const int before = std::exchange(untold_refusals_, 0);
  log_warning("refused a connection from " + who + ": " + printable(why.substr(0, 1000)) +
              (before > 0 ? " (and " + std::to_string(before) + " more before)" : ""));
}

void Head::bury(std::unique_ptr<PeerLink> link) {
  if (!link) return;
  link->mute();
  buried_->push_back(std::move(link));
  loop_.post([buried = buried_] { buried->clear(); });
}

// ---------------------------------------------------------------- nodes

/// Loses the node when it has been silent for too long.
void Head::watch_over(int index) {
  Node& node = nodes_.at(index);
  const Seconds silent(now() - node.link->last_heard());
  if (silent < settings_->node_timeout)
    return node.timer.set(settings_->node_timeout - silent, [this, index] { watch_over(index); });
  char text[64];
  std::snprintf(text, sizeof text, "nothing was heard of it for %.3g s", settings_->node_timeout.count());
  lose(index, text);
}

void Head::lose(int index, const std::string& why) {
  const auto found = nodes_.find(index);
  if (found == nodes_.end()) return;
  const std::string text = "node " + found->second.name + " is lost: " + why;
  bury(std::move(found->second.link));
  nodes_.erase(found);
  tell_engine(head_link::Lost{index, why});
  const auto clients = clients_;
  for (const auto& [stream, client] : clients)
    if (clients_.contains(stream)) client->node_lost(index, text);
}

void Head::on_message(int index, std::span<const std::uint8_t> message) {
  wire::NodeToHead given;
  try {
    given = wire::decode<wire::NodeToHead>(message);
  } catch (const wire::WireError& error) {
    return lose(index, error.what());
  }
  Node& node = nodes_.at(index);
  if (const auto* beat = std::get_if<wire::Beat>(&given)) return node.link->tell(wire::BeatSeen{beat->number});
  if (const auto* ended = std::get_if<wire::StreamEnded>(&given)) {
    const auto stream = static_cast<Stream>(ended->stream);
    node.readers.erase(stream);
    if (const auto client = clients_.find(stream); client != clients_.end()) client->second->node_ended(index);
  }
}

void Head::on_data(int index, Stream stream, std::span<const std::uint8_t> bytes) {
  const auto client = clients_.find(stream);
  if (client == clients_.end()) return;  // its last messages, after the driver has closed the connection
  wire::FrameReader& reader = nodes_.at(index).readers[stream];
  try {
    reader.feed(bytes);
    while (const auto frame = reader.next_view()) client->second->from_node(index, *frame);
  } catch (const wire::WireError& error) {
    lose(index, error.what());
  }
}

Relay::Stream Head::join(Client& client) {
  clients_[next_stream_] = &client;
  return next_stream_++;
}

void Head::leave(Stream stream) { clients_.erase(stream); }

bool Head::send(int index, Stream stream, std::span<const std::uint8_t> frame) {
  const auto node = nodes_.find(index);
  if (node == nodes_.end()) return false;
  Bytes framed;
  wire::append_frame(framed, frame);
  node->second.link->send(stream, std::move(framed));
  return true;
}

bool Head::close(int index, Stream stream) {
  const auto node = nodes_.find(index);
  if (node == nodes_.end()) return false;
  node->second.link->forget(stream);
  node->second.link->tell(wire::CloseStream{stream});
  return true;
}

void Head::hold(int index, Stream stream, bool hold) {
  if (const auto node = nodes_.find(index); node != nodes_.end())
    node->second.link->tell(wire::HoldStream{stream, hold});
}

}  // namespace lockstep::agent
