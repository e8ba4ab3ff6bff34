#include "agent/joined.h"

#include <lockstep/error.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

/// Between two attempts to connect.
constexpr Seconds kPause{0.2};
/// If an attempt takes longer, another is made.
constexpr Seconds kConnectWithin{5.0};
/// The head must answer the hello within this time.
constexpr Seconds kWelcomeWithin{15.0};
/// Parts of the node timeout: between two signs of life, and how long the lease lasts after one that was answered. The
/// rest is for killing the workers.
constexpr double kBeat = 0.1;
constexpr double kLease = 0.6;
/// A worker whose agent has not killed it after the lease kills itself this part of the node timeout later.
constexpr double kWorkersLater = 0.1;
/// If more than this waits to be sent to the head, runs are not read.
constexpr std::size_t kLinkFull = std::size_t{8} << 20;

struct FreeAddresses {
  void operator()(addrinfo* all) const { ::freeaddrinfo(all); }
};

/// A socket that is being connected; empty, and `why` set, if that cannot even begin.
sys::Descriptor begin_to_connect(const std::string& host, int port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    why = "the name " + in_quotes(host) + " has no address: " + ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket && (::connect(socket.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 || errno == EINPROGRESS))
    return socket;
  why = std::strerror(errno);
  return {};
}

}  // namespace

Joined::Joined(Loop& loop, Options options, Handlers handlers)
    : loop_(loop),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      give_up_(now() + ticks(options_.patience)),
      timer_(loop),
      lease_timer_(loop) {
  loop_.post([this] { try_to_connect(); });
}

// ---------------------------------------------------------------- connecting

void Joined::try_to_connect() {
  connecting_watch_ = {};
  connecting_.reset();
  std::string why;
  connecting_ = begin_to_connect(options_.host, options_.port, why);
  const auto again = [this](const std::string& reason) {
    if (now() >= give_up_)
      return end("the head at " + options_.host + ":" + std::to_string(options_.port) +
                 " cannot be reached: " + reason);
    timer_.set(kPause, [this] { try_to_connect(); });
  };
  if (!connecting_) return again(why);
  connecting_watch_ = Watch(loop_, connecting_.get());
  timer_.set(kConnectWithin, [again] { again("it does not answer"); });
  connecting_watch_.once_writable([this, again] {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    connecting_watch_ = {};
    if (error != 0) return again(std::strerror(error));
    timer_.cancel();
    use(std::move(connecting_));
  });
}

void Joined::use(sys::Descriptor socket) {
  PeerLink::Handlers handlers;
  handlers.proved = [this] { link_->tell(options_.hello); };
  handlers.message = [this](auto message) { on_message(message); };
  handlers.data = [this](auto stream, auto bytes) { on_data(stream, bytes); };
  handlers.sent = [this] {
    if (std::exchange(is_full_, false)) set_reading();
  };
  handlers.closed = [this](const std::string& why) {
    end(was_welcome() ? "the connection to the head has ended: " + why
                      : "the head did not take this agent; the secret may be that of another run (" + why + ")");
  };
  link_ =
      std::make_unique<PeerLink>(loop_, std::move(socket), options_.secret, TlsStream::Side::node, std::move(handlers));
  timer_.set(kWelcomeWithin, [this] { end("the head did not answer"); });
}

void Joined::end(const std::string& why) {
  if (std::exchange(is_over_, true)) return;
  timer_.cancel();
  lease_timer_.cancel();
  if (link_) link_->mute();
  handlers_.over(why);
}

// ---------------------------------------------------------------- what the head says

void Joined::on_message(std::span<const std::uint8_t> message) {
  try {
    const auto given = wire::decode<wire::HeadToNode>(message);
    std::visit([this](const auto& each) { on(each); }, given);
  } catch (const wire::WireError& error) {
    end(error.what());
  }
}

void Joined::on(const wire::Welcome& message) {
  if (was_welcome() || message.node < 1 || !(message.node_timeout > 0)) return end("the head's welcome makes no sense");
  node_ = message.node;
  node_timeout_ = Seconds(message.node_timeout);
  lease_end_ = now() + ticks(kLease * node_timeout_);
  handlers_.welcome(node_);
  renew_lease();
  beat();
}

void Joined::on(const wire::Refused& message) { end("the head refused this agent: " + printable(message.why)); }

void Joined::on(const wire::BeatSeen& message) {
  const auto found = sent_.find(message.number);
  if (found == sent_.end()) return;
  lease_end_ = found->second + ticks(kLease * node_timeout_);
  sent_.erase(sent_.begin(), std::next(found));
  renew_lease();
}

void Joined::beat() {
  sent_[++beats_] = now();
  link_->tell(wire::Beat{beats_});
  timer_.set(kBeat * node_timeout_, [this] { beat(); });
}

void Joined::renew_lease() {
  handlers_.lease(lease_end_ + ticks(kWorkersLater * node_timeout_));
  lease_timer_.set(Seconds(lease_end_ - now()),
                   [this] { end("the head is silent, and the lease of this node is over"); });
}

// ---------------------------------------------------------------- runs

Joined::Bridge& Joined::bridge_of(Stream stream) {
  if (const auto found = bridges_.find(stream); found != bridges_.end()) return found->second;
  auto [ours, theirs] = sys::socket_pair();
  Bridge& bridge = bridges_[stream];
  bridge.socket = std::move(ours);
  bridge.watch = Watch(loop_, bridge.socket.get());
  bridge.watch.on_readable([this, stream] { read(stream); });
  handlers_.run(std::move(theirs));
  return bridge;
}

void Joined::on_data(Stream stream, std::span<const std::uint8_t> bytes) {
  if (!was_welcome()) return end("the head sent data before its welcome");
  Bridge& bridge = bridge_of(stream);
  if (bridge.is_closing) return;
  bridge.outgoing.insert(bridge.outgoing.end(), bytes.begin(), bytes.end());
  write(stream);
}

void Joined::on(const wire::CloseStream& message) {
  const auto stream = static_cast<Stream>(message.stream);
  const auto found = bridges_.find(stream);
  if (found == bridges_.end()) return link_->tell(wire::StreamEnded{message.stream});
  Bridge& bridge = found->second;
  bridge.is_closing = true;
  bridge.is_held = false;
  bridge.outgoing.clear();
  bridge.done = 0;
  ::shutdown(bridge.socket.get(), SHUT_WR);
  bridge.watch.resume();
}

void Joined::on(const wire::HoldStream& message) {
  const auto found = bridges_.find(static_cast<Stream>(message.stream));
  if (found == bridges_.end()) return;
  found->second.is_held = message.hold;
  set_reading();
}

void Joined::set_reading() {
  for (auto& [stream, bridge] : bridges_)
    if (is_full_ || bridge.is_held)
      bridge.watch.pause();
    else
      bridge.watch.resume();
}

/// From the run to the head.
void Joined::read(Stream stream) {
  static std::array<std::uint8_t, std::size_t{256} << 10> buffer;
  Bridge& bridge = bridges_.at(stream);
  const ssize_t size = ::recv(bridge.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (is_over_) return;
  if (size <= 0) {
    bridges_.erase(stream);
    link_->forget(stream);
    return link_->tell(wire::StreamEnded{stream});
  }
  if (bridge.is_closing) return;
  link_->send(stream, Bytes(buffer.begin(), buffer.begin() + size));
  if (link_->waiting() > kLinkFull && !std::exchange(is_full_, true)) set_reading();
}

/// From the head to the run.
void Joined::write(Stream stream) {
  const auto found = bridges_.find(stream);
  if (found == bridges_.end()) return;
  Bridge& bridge = found->second;
  while (bridge.done < bridge.outgoing.size() && !bridge.is_writing) {
    const ssize_t size = ::send(bridge.socket.get(), bridge.outgoing.data() + bridge.done,
                                bridge.outgoing.size() - bridge.done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      bridge.done += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      bridge.is_writing = true;
      bridge.watch.once_writable([this, stream] {
        if (const auto again = bridges_.find(stream); again != bridges_.end()) again->second.is_writing = false;
        write(stream);
      });
      return;
    } else if (errno != EINTR) {
      bridge.done = bridge.outgoing.size();  // the run is over, which read() sees too
    }
  }
  if (bridge.done == bridge.outgoing.size()) {
    Bytes().swap(bridge.outgoing);
    bridge.done = 0;
  }
}

}  // namespace lockstep::agent
