#include "horovod/rendezvous.h"

#include <arpa/inet.h>
#include <lockstep/error.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "horovod/hmac.h"

namespace lockstep::horovod {
namespace {

constexpr std::uint64_t kNotices = 0;
constexpr int kBacklog = 1024;
constexpr int kSecretDigits = 32;
constexpr int kEventsAtOnce = 64;
/// After accept() has failed, no connection is accepted for this long.
constexpr Seconds kRest{0.1};
/// Counted for each key in addition to its bytes, against most_bytes.
constexpr std::size_t kKeyCost = 128;
/// Gloo's address of one connection: a sockaddr_storage and a number.
constexpr std::size_t kAddressSize = sizeof(sockaddr_storage) + sizeof(std::uint64_t);

/// The answer to a process that has no slot in the job; it then ends.
constexpr const char* kNoMember = "-1,-1,-1,-1,-1,-1";
/// Part of the name of every scope that belongs to one of Horovod's process sets.
constexpr std::string_view kProcessSet = "_process_set_hash_";

EngineError refused(const char* what) {
  return EngineError(std::string("[rendezvous] ") + what + ": " + strerror(errno));
}

std::optional<int> parsed_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// The rank in "rank_12".
std::optional<int> rank_in(std::string_view key) {
  constexpr std::string_view kPrefix = "rank_";
  if (!key.starts_with(kPrefix)) return std::nullopt;
  return parsed_number(key.substr(kPrefix.size()));
}

std::string text_of(const Slot& slot) {
  std::string text;
  for (const int number : {slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size})
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// The ports in a value that is a list of addresses; empty if it is something else.
std::vector<int> ports_in(const std::string& value) {
  std::vector<int> ports;
  if (value.size() % kAddressSize != 0) return ports;
  for (std::size_t at = 0; at < value.size(); at += kAddressSize) {
    sockaddr_in address;
    std::memcpy(&address, value.data() + at, sizeof address);
    if (address.sin_family == AF_INET || address.sin_family == AF_INET6) ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

/// The run's files and workers need the rest.
std::size_t quarter_of_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return SIZE_MAX;
  return std::max<std::size_t>(1, limit.rlim_cur / 4);
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options)
    : options_(std::move(options)), sender_(events_, kNotices, options_.notice) {
  options_.most_connections = std::min(options_.most_connections, quarter_of_descriptors());
  events_ = sys::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!events_) throw refused("epoll_create1");
}

Rendezvous::~Rendezvous() = default;

std::vector<std::string> Rendezvous::hosts_of(int world_size) const {
  return options_.hosts.empty() ? std::vector<std::string>(static_cast<std::size_t>(world_size), "localhost")
                                : options_.hosts;
}

void Rendezvous::check(int world_size) const {
  const auto hosts = hosts_of(world_size);
  if (static_cast<int>(hosts.size()) != world_size)
    throw ConfigError("[rendezvous] there are hosts for " + std::to_string(hosts.size()) + " ranks, but there are " +
                      std::to_string(world_size) + " workers");
  if (options_.elastic)
    Members(hosts, members_options());
  else
    slots_of(hosts);
}

void Rendezvous::begin_attempt(int attempt, int world_size, const std::string& address) {
  connections_.clear();
  clear();
  news_.clear();
  warned_ = false;
  sender_.forget_all();
  doors_.clear();
  attempt_ = attempt;
  address_ = address;
  slots_ = slots_of(hosts_of(world_size));
  if (options_.elastic) {
    members_.emplace(hosts_of(world_size), members_options());
    secret_ = random_hex(kSecretDigits);
  }
  listening_ = true;
  port_ = open_door(-1);
}

int Rendezvous::open_door(int member) {
  sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  Door door{Watched(events_, std::move(socket)), 0, member};
  if (!door.socket) throw refused("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, address_.c_str(), &address.sin_addr) != 1)
    throw EngineError("[rendezvous] this machine's address is " + in_quotes(address_) + ", which is not IPv4");
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(door.socket.get(), generic, size) < 0) throw refused("bind");
  if (::listen(door.socket.get(), kBacklog) < 0) throw refused("listen");
  if (::getsockname(door.socket.get(), generic, &size) < 0) throw refused("getsockname");
  door.port = ntohs(address.sin_port);
  const auto id = next_id_++;
  if (listening_ && !door.socket.watch(id, EPOLLIN)) throw refused("epoll_ctl");
  return doors_.emplace(id, std::move(door)).first->second.port;
}

const Rendezvous::Door* Rendezvous::door_of(int member) const {
  const auto found = std::ranges::find(doors_, member, [](const auto& each) { return each.second.member; });
  return found == doors_.end() ? nullptr : &found->second;
}

Value Rendezvous::begin_of(int rank) const {
  const Slot& slot = members_ ? members_->slot(rank) : slots_.at(static_cast<std::size_t>(rank));
  const Door* own = door_of(rank);
  Value place = {{"address", address_},
                 {"port", own != nullptr ? own->port : port_},
                 {"host", members_ ? with_secret(slot.host) : slot.host},
                 {"rank", slot.rank},
                 {"size", slot.size},
                 {"local_rank", slot.local_rank},
                 {"local_size", slot.local_size},
                 {"cross_rank", slot.cross_rank},
                 {"cross_size", slot.cross_size}};
  if (members_) place["secret"] = secret_;
  return place;
}

// ---------------------------------------------------------------- connections

std::vector<driver::Event> Rendezvous::serve(Instant now) {
  std::array<epoll_event, kEventsAtOnce> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) {
    const auto id = ready[static_cast<std::size_t>(i)].data.u64;
    if (const auto door = doors_.find(id); door != doors_.end()) {
      accept(door->second, now);
    } else if (const auto found = connections_.find(id); found != connections_.end()) {
      found->second.waits == Waits::to_be_sent ? send(found) : handle(found, now);
    } else if (id == kNotices) {
      sender_.go_on();
    }
  }
  close_late(now);
  if (accept_again_ && now >= *accept_again_) {
    accept_again_.reset();
    watch_doors(true);
  }
  if (!members_) return {};
  end_round_when_complete(now);
  sender_.update(members_->due_notice(), now);
  for (const int rank : members_->take_stuck(now)) news_.push_back(driver::RankStuck{attempt_, rank});
  for (const int rank : members_->take_needless()) news_.push_back(driver::RankNeedless{attempt_, rank});
  return std::exchange(news_, {});
}

std::optional<Instant> Rendezvous::deadline() const {
  std::optional<Instant> first = members_ ? members_->deadline() : std::nullopt;
  for (const auto& other : {accept_again_, sender_.deadline()})
    if (other && (!first || *other < *first)) first = other;
  for (const auto& [id, connection] : connections_) {
    const bool may_stay = connection.waits == Waits::round || connection.waits == Waits::loss;
    if (!may_stay && (!first || connection.deadline < *first)) first = connection.deadline;
  }
  return first;
}

void Rendezvous::close_late(Instant now) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto late = each++;
    if (now < late->second.deadline) continue;
    if (late->second.waits == Waits::to_be_sent)
      close(late);
    else if (late->second.waits == Waits::request)
      reply(late, 408);
    else if (late->second.waits == Waits::value)
      reply(late, 404);
  }
}

void Rendezvous::watch_doors(bool on) {
  if (listening_ == on) return;
  listening_ = on;
  for (auto& [id, door] : doors_)
    if (on)
      door.socket.watch(id, EPOLLIN);
    else
      door.socket.forget();
}

void Rendezvous::keep_waiting(const std::string& why) {
  if (!std::exchange(warned_, true)) log_warning("[rendezvous] " + why + "; other clients wait");
  watch_doors(false);
}

void Rendezvous::accept(const Door& door, Instant now) {
  for (;;) {
    // Further clients wait in the system's queue.
    if (connections_.size() >= options_.most_connections)
      return keep_waiting(std::to_string(connections_.size()) + " connections are open");
    sys::Descriptor socket(::accept4(door.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket) {
      if (errno == EAGAIN) return;
      accept_again_ = now + ticks(kRest);
      return keep_waiting("accept: " + std::string(strerror(errno)));  // out of descriptors or memory
    }
    const auto id = next_id_++;
    Connection connection{Watched(events_, std::move(socket)), RequestReader(address_, options_.request), door.member};
    if (!connection.socket.watch(id, EPOLLIN)) continue;
    connection.deadline = now + ticks(options_.request_timeout);
    handle(connections_.emplace(id, std::move(connection)).first, now);  // most requests have arrived already
  }
}

void Rendezvous::handle(Connections::iterator connection, Instant now) {
  std::array<char, 16 << 10> chunk;
  for (;;) {
    const ssize_t size = ::recv(connection->second.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return close(connection);
    if (connection->second.waits != Waits::request) return close(connection);  // a client that waits must not send more
    const int status = connection->second.reader.feed({chunk.data(), static_cast<std::size_t>(size)});
    if (status == 200) return answer_request(connection, now);
    if (status != 0) return reply(connection, status);
  }
}

void Rendezvous::close(Connections::iterator connection) {
  if (connection->second.waits == Waits::round) members_->withdraw(connection->second.member);
  drop(connection);
}

/// Makes room for another connection.
void Rendezvous::drop(Connections::iterator connection) {
  connections_.erase(connection);
  if (!accept_again_) watch_doors(true);
}

void Rendezvous::reply(Connections::iterator connection, int status, std::string_view body) {
  connection->second.out = response_text(status, body);
  connection->second.waits = Waits::to_be_sent;
  send(connection);
}

void Rendezvous::send(Connections::iterator connection) {
  std::string& out = connection->second.out;
  while (!out.empty()) {
    const ssize_t size = ::send(connection->second.socket.get(), out.data(), out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      connection->second.socket.watch(connection->first, EPOLLOUT);
      return;
    }
    if (size < 0) break;
    out.erase(0, static_cast<std::size_t>(size));
  }
  close(connection);
}

// ---------------------------------------------------------------- requests

void Rendezvous::answer_request(Connections::iterator connection, Instant now) {
  const StoreRequest& request = connection->second.reader.request();
  if (members_) note_connected(request);
  if (concerns_members(connection->second)) return answer_elastic(connection, now);
  if (request.method == "PUT") {
    const bool stored = put(request);
    if (stored) give(request);
    return reply(connection, stored ? 200 : 507);
  }
  if (request.method == "GET") {
    const auto found = values_.find({request.scope, request.key});
    if (found != values_.end()) return reply(connection, 200, found->second);
    if (!parsed_number(request.key)) return reply(connection, 404);
    connection->second.waits = Waits::value;
    connection->second.deadline = now + ticks(options_.value_timeout);
    return;
  }
  remove(request.scope, request.key);
  remove(request.scope, "rank_" + request.key);
  reply(connection, 200);
}

/// A rank is connected when it deletes its key in the last scope of the round.
void Rendezvous::note_connected(const StoreRequest& request) {
  constexpr std::string_view kPrefix = "cross_";
  const std::string_view scope = request.scope;
  const auto end = scope.find(kProcessSet);
  const bool of_process_set = end != std::string_view::npos;
  process_sets_ = process_sets_ || of_process_set;
  if (request.method != "DELETE" || !scope.starts_with(kPrefix) || of_process_set != process_sets_) return;
  const auto local_rank = parsed_number(scope.substr(0, end).substr(kPrefix.size()));
  const auto cross_rank = parsed_number(request.key);
  if (local_rank && cross_rank) members_->connected(*local_rank, *cross_rank);
}

/// Answers the clients that wait for this value.
void Rendezvous::give(const StoreRequest& put) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto waiting = each++;
    const StoreRequest& wanted = waiting->second.reader.request();
    if (waiting->second.waits == Waits::value && wanted.scope == put.scope && wanted.key == put.key)
      reply(waiting, 200, put.body);
  }
}

bool Rendezvous::concerns_members(const Connection& connection) const {
  static constexpr std::array<std::string_view, 4> kScopes = {"rank_and_size", "losses", "worker_addresses", "done"};
  if (!members_) return false;
  const bool left = connection.door >= 0 && members_->is_away(connection.door);
  return left || members_->in_round() || std::ranges::count(kScopes, connection.reader.request().scope) > 0;
}

void Rendezvous::answer_elastic(Connections::iterator connection, Instant now) {
  const auto& [method, scope, key, body] = connection->second.reader.request();
  std::optional<int> asks;
  const auto place = place_in(key);
  if (method == "GET" && scope == "rank_and_size" && place) asks = members_->called(*place);
  if (method == "PUT" && scope == "global") asks = newcomer(connection->second);
  if (asks) {
    members_->ask(*asks, now);
    return hold(connection, Waits::round, *asks);
  }
  if (method == "GET" && scope == "rank_and_size") return reply(connection, 200, kNoMember);
  const auto rank = rank_of_ours(key);
  if (method == "GET" && scope == "losses" && rank) return hold(connection, Waits::loss, *rank);
  if (method == "PUT" && scope == "worker_addresses") keep_address(connection->second);
  if (method == "PUT" && scope == "done" && rank) members_->finish(*rank);
  reply(connection, method == "GET" ? 404 : 200);
}

/// The text before the secret; nothing if the secret is wrong.
std::optional<std::string_view> Rendezvous::without_secret(std::string_view text) const {
  const std::string end = with_secret("");
  if (text.size() < end.size()) return std::nullopt;
  const auto size = text.size() - end.size();
  return are_equal_secrets(text.substr(size), end) ? std::optional(text.substr(0, size)) : std::nullopt;
}

/// Returns "host:local_rank" for "host-secret:local_rank".
std::optional<std::string> Rendezvous::place_in(std::string_view key) const {
  const auto colon = std::min(key.rfind(':'), key.size());
  const auto host = without_secret(key.substr(0, colon));
  if (!host) return std::nullopt;
  return std::string(*host).append(key.substr(colon));
}

/// The run's rank in "rank-secret".
std::optional<int> Rendezvous::rank_of_ours(std::string_view key) const {
  const auto rank = parsed_number(without_secret(key).value_or(""));
  return rank && *rank < static_cast<int>(slots_.size()) ? rank : std::nullopt;
}

/// The new member that makes this first request. A member with its own port uses no other.
std::optional<int> Rendezvous::newcomer(const Connection& connection) const {
  const auto rank = rank_in(connection.reader.request().key);
  if (!rank) return std::nullopt;
  if (connection.door >= 0) return members_->is_fresh(connection.door) ? std::optional(connection.door) : std::nullopt;
  const auto member = members_->newcomer(*rank);
  return member && door_of(*member) == nullptr ? member : std::nullopt;
}

/// A worker sends its address once, when it has got its first slot.
void Rendezvous::keep_address(const Connection& connection) {
  const StoreRequest& put = connection.reader.request();
  const auto place = place_in(put.key);
  if (!place) return;
  const auto member = connection.door >= 0 ? std::optional(connection.door) : members_->called(*place);
  auto address = read_notice_address(put.body);
  if (!address) log_debug("[rendezvous] the notice address of " + in_quotes(*place) + " cannot be parsed");
  if (member && address) sender_.set_address(*member, std::move(*address));
}

/// A client that asks again has given up its earlier request, which is dropped.
void Rendezvous::hold(Connections::iterator connection, Waits what, int member) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto before = each++;
    const Connection& other = before->second;
    if (before != connection && other.waits == what && other.member == member) drop(before);
  }
  connection->second.waits = what;
  connection->second.member = member;
}

void Rendezvous::end_round_when_complete(Instant now) {
  const auto how = members_->round(now);
  if (how == Members::Round::open) return;
  clear();
  const bool whole = how == Members::Round::whole;
  for (const int member : members_->end_round(how))
    news_.push_back(whole ? driver::Event(driver::RankJoined{attempt_, member}) : driver::RankLeft{attempt_, member});
  std::vector<std::uint64_t> held;
  for (const auto& [id, connection] : connections_)
    if (connection.waits == Waits::round && !members_->is_away(connection.member)) held.push_back(id);
  const auto joins = [&](std::uint64_t id) { return connections_.at(id).reader.request().method == "PUT"; };
  for (const auto id : held)
    if (joins(id)) put(connections_.at(id).reader.request());
  for (const auto id : held) {
    const std::string slot = joins(id) ? "" : text_of(members_->told(connections_.at(id).member));
    reply(connections_.find(id), 200, slot);
  }
}

std::optional<std::string> Rendezvous::lose(int rank, Instant now) {
  if (!members_) return std::nullopt;
  const bool others_go_on = members_->is_away(rank);
  std::optional<std::string> impossible;
  if (!others_go_on && members_->are_joining_beside(rank))
    impossible = "the other ranks were connecting to it and cannot stop";
  if (!members_->lose(rank, now)) impossible = "no rank on its host is left that could continue";
  sender_.forget(rank);
  std::erase_if(doors_, [&](const auto& each) { return each.second.member == rank; });
  open_door(rank);
  for (auto each = connections_.begin(); each != connections_.end();) {  // requests of the dead member
    const auto held = each++;
    if (held->second.waits == Waits::round && held->second.member == rank) drop(held);
  }
  if (others_go_on) return impossible;
  std::string ports;
  for (const int port : ports_) ports += (ports.empty() ? "" : ",") + std::to_string(port);
  clear();
  for (auto each = connections_.begin(); each != connections_.end();) {
    const auto held = each++;
    if (held->second.waits == Waits::loss) reply(held, 200, ports);
  }
  return impossible;
}

// ---------------------------------------------------------------- the store

bool Rendezvous::put(const StoreRequest& request) {
  const auto found = values_.find({request.scope, request.key});
  const std::size_t name = request.scope.size() + request.key.size() + kKeyCost;
  const std::size_t before = found == values_.end() ? 0 : name + found->second.size();
  const std::size_t size = name + request.body.size();
  if (bytes_ - before + size > options_.most_bytes) return false;
  bytes_ += size - before;
  for (const int port : ports_in(request.body)) ports_.insert(port);
  values_.insert_or_assign({request.scope, request.key}, request.body);
  return true;
}

void Rendezvous::remove(const std::string& scope, const std::string& key) {
  const auto found = values_.find({scope, key});
  if (found == values_.end()) return;
  bytes_ -= scope.size() + key.size() + kKeyCost + found->second.size();
  values_.erase(found);
}

void Rendezvous::clear() {
  values_.clear();
  bytes_ = 0;
  ports_.clear();
}

}  // namespace lockstep::horovod
