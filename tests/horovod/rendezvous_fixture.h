#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/rendezvous.h"
#include "sys/node.h"

namespace lockstep::horovod {

/// A client that speaks when it is told to. The server has no thread, so all happens in this one, in order.
class Client {
 public:
  explicit Client(int port, const char* host = sys::kLoopback)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, host, &address.sin_addr);
    connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  bool connected() const { return connected_; }
  void say(std::string_view text) {
    ASSERT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  /// Whatever it takes of it.
  void try_to_say(std::string_view text) {
    (void)!::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void hang_up() { socket_.reset(); }

  /// What has come so far; `closed` when the server has closed.
  std::string heard() {
    char chunk[65536];
    for (;;) {
      const ssize_t size = ::recv(socket_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
      if (size > 0) {
        heard_.append(chunk, static_cast<std::size_t>(size));
        continue;
      }
      closed = closed || size == 0 || errno == ECONNRESET;
      return heard_;
    }
  }

  bool closed = false;

 private:
  sys::Descriptor socket_;
  bool connected_ = false;
  std::string heard_;
};

inline std::string request(const std::string& method, const std::string& path, const std::string& body = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

inline std::string base64(std::string_view bytes) {
  constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      group = group << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0);
    for (int shift = 18; shift >= 0; shift -= 6) text += kLetters[group >> shift & 63];
    for (std::size_t i = bytes.size(); i < at + 3; ++i) text[text.size() - (at + 3 - i)] = '=';
  }
  return text;
}

class RendezvousTest : public testing::Test {
 protected:
  void open(int ranks, bool elastic = false) {
    RendezvousOptions options;
    options.hosts.assign(static_cast<std::size_t>(ranks), "a");
    options.elastic = elastic;
    open(std::move(options));
  }
  void open(RendezvousOptions options) {
    ranks_ = static_cast<int>(options.hosts.size());
    server.emplace(std::move(options));
    begin_attempt();
  }
  void begin_attempt() { server->begin_attempt(++attempt_, ranks_, sys::kLoopback); }

  /// Lets the server do all that it can.
  void serve() {
    pollfd item{server->fd(), POLLIN, 0};
    while (::poll(&item, 1, 0) > 0) take(server->serve(time));
    take(server->serve(time));
  }
  void take(const std::vector<driver::Event>& news) {
    for (const auto& event : news) {
      take<driver::RankStuck>(event, stuck);
      take<driver::RankLeft>(event, left);
      take<driver::RankJoined>(event, back);
      take<driver::RankNeedless>(event, needless);
    }
  }
  template <class E>
  void take(const driver::Event& event, std::vector<int>& ranks) {
    const E* found = std::get_if<E>(&event);
    if (found == nullptr) return;
    EXPECT_EQ(found->attempt, attempt_);
    ranks.push_back(found->rank);
  }

  /// A whole exchange.
  std::string ask(const std::string& text) {
    Client client(server->port());
    client.say(text);
    serve();
    const std::string answer = client.heard();
    EXPECT_TRUE(client.closed);
    return answer;
  }
  int put(const std::string& path, const std::string& body = "") { return status(ask(request("PUT", path, body))); }
  std::string get(const std::string& path) {
    const std::string answer = ask(request("GET", path));
    return status(answer) == 200 ? body(answer) : std::to_string(status(answer));
  }

  /// Whether the value is there; others wait for it.
  bool has(const std::string& path) {
    Client client(server->port());
    client.say(request("GET", path));
    serve();
    return !client.heard().empty();
  }

  /// Of an elastic job: what its workers know and others do not.
  std::string secret() const { return server->begin_of(0).value("secret", ""); }
  /// The path for a worker that calls itself "host:local_rank".
  std::string at(const std::string& scope, const std::string& place) const {
    const auto colon = place.find(':');
    return scope + place.substr(0, colon) + "-" + secret() + place.substr(colon);
  }
  /// The path for a rank of the run.
  std::string ours(const std::string& scope, int rank) const { return scope + std::to_string(rank) + "-" + secret(); }
  std::string asks(const std::string& place) const { return request("GET", at("/rank_and_size/", place)); }
  std::string listens(int rank) const { return request("GET", ours("/losses/", rank)); }

  static int status(const std::string& answer) { return answer.empty() ? 0 : std::stoi(answer.substr(9, 3)); }
  static std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

  /// One who asks and is held.
  Client held(const std::string& text) {
    Client client(server->port());
    client.say(text);
    serve();
    EXPECT_EQ(client.heard(), "");
    EXPECT_FALSE(client.closed);
    return client;
  }
  /// The first thing that a new worker says.
  Client joins(int rank) { return held(request("PUT", "/global/rank_" + std::to_string(rank), "a name")); }
  /// Takes all through their first round.
  void join_all(int ranks) {
    std::vector<Client> clients;
    for (int rank = 0; rank < ranks; ++rank) {
      clients.emplace_back(server->port());
      clients.back().say(request("PUT", "/global/rank_" + std::to_string(rank), "a name"));
    }
    serve();
    for (Client& client : clients) EXPECT_EQ(status(client.heard()), 200);
    connect(ranks);
    back.clear();
  }
  /// What so many workers of one host say last when they have found each other.
  void connect(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) ask(request("DELETE", "/cross_" + std::to_string(rank) + "/0"));
  }
  /// The first words of one that replaces another, through the port that it was told.
  Client arrives(int rank) {
    const Value place = server->begin_of(rank);
    Client client(place["port"].get<int>());
    client.say(request("PUT", "/global/rank_" + std::to_string(place["rank"].get<int>()), "new"));
    serve();
    return client;
  }

  std::optional<Rendezvous> server;
  Instant time = Instant{} + 1000s;
  std::vector<int> stuck, left, back, needless;

 private:
  int attempt_ = -1;
  int ranks_ = 0;
};

}  // namespace lockstep::horovod
