#include "dashboard/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <mutex>
#include <thread>

#include "dashboard/certificate.h"
#include "sys/descriptor.h"
#include "sys/sockets.h"

namespace lockstep::dashboard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// Tells what the test gives it.
class FakeFeed final : public Feed {
 public:
  int descriptor() const override { return event_.get(); }
  std::vector<Change> take() override {
    const std::scoped_lock lock(mutex_);
    std::uint64_t ignored = 0;
    (void)!::read(event_.get(), &ignored, sizeof ignored);
    return std::exchange(changes_, {});
  }
  std::vector<Change> look() override { return {}; }
  void follow(const std::vector<std::string>& places) override {
    const std::scoped_lock lock(mutex_);
    followed_ = places;
  }
  void tell(const Change& change) {
    const std::scoped_lock lock(mutex_);
    changes_.push_back(change);
    const std::uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof one);
  }
  std::vector<std::string> followed() {
    const std::scoped_lock lock(mutex_);
    return followed_;
  }

 private:
  sys::Descriptor event_ = sys::event_descriptor();
  std::mutex mutex_;
  std::vector<Change> changes_;
  std::vector<std::string> followed_;
};

/// A connection that speaks as the test wants.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// Reads until `wanted` is in what came, or the server has closed.
  std::string read_until(std::string_view wanted) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    std::vector<char> buffer(64 << 10);
    while (read_.find(wanted) == std::string::npos && ::poll(&waiting, 1, 30'000) > 0) {
      const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        closed_ = true;
        break;
      }
      read_.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return read_;
  }
  std::string read_to_end() { return read_until(std::string_view("\xff\xff never", 8)); }
  bool is_closed() const { return closed_; }

 private:
  sys::Descriptor socket_;
  std::string read_;
  bool closed_ = false;
};

class ServerTest : public testing::Test {
 protected:
  void start(ServerLimits limits = {}) {
    ServerOptions options;
    options.access = {"secret", {"127.0.0.1"}, false};
    options.limits = limits;
    server.emplace(
        options, [this](const Request& request) { return handle(request); }, feed);
    thread = std::thread([this] { server->run(); });
  }
  ~ServerTest() override {
    if (!thread.joinable()) return;
    server->stop();
    thread.join();
  }
  static Response handle(const Request& request) {
    if (request.path == "/missing") throw ConfigError("no such thing");
    if (request.path == "/large") return {200, "text/plain", std::string(64 << 20, 'x')};
    return {200, "text/plain", "path " + request.path};
  }
  static std::string request(const std::string& target, const std::string& more = "") {
    return "GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\n" + more + "\r\n";
  }
  std::string ask(const std::string& text) {
    Client client(server->port());
    client.send(text);
    return client.read_to_end();
  }

  FakeFeed feed;
  std::optional<Server> server;
  std::thread thread;
};

TEST_F(ServerTest, AnswersWithHeadersThatProtect) {
  start();
  const std::string answer = ask(request("/a%20b?x=1", "Connection: close\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("path /a b"));
  for (const char* header : {"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "Referrer-Policy: no-referrer",
                             "Cache-Control: no-store", "Cross-Origin-Resource-Policy: same-origin"})
    EXPECT_THAT(answer, HasSubstr(header));
}

TEST_F(ServerTest, SeveralRequestsOnOneConnection) {
  start();
  Client client(server->port());
  client.send(request("/one"));
  EXPECT_THAT(client.read_until("path /one"), HasSubstr("path /one"));
  client.send(request("/two"));
  EXPECT_THAT(client.read_until("path /two"), HasSubstr("path /two"));
}

TEST_F(ServerTest, HeadHasNoBody) {
  start();
  const std::string answer = ask("HEAD /abc?token=secret HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, testing::Not(HasSubstr("path /abc")));
}

TEST_F(ServerTest, RefusesStrangersBeforeAnythingElse) {
  start();
  const std::string end = "Connection: close\r\n\r\n";
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + end), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + end), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask("GET /?token=secret HTTP/1.1\r\nHost: evil.example\r\n" + end), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(ask("GET /?token=secret HTTP/1.1\r\n" + end), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(ask(request("/", "Origin: http://evil.example\r\nConnection: close\r\n")), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask("POST /?token=secret HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n" + end),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(ServerTest, RefusesWhatIsTooLargeOrMalformed) {
  start();
  EXPECT_THAT(ask(request("/", "X: " + std::string(20'000, 'x') + "\r\n")), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask("GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n"), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask(request("/", "Content-Length: 100000000\r\n")), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + "\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(request("/a%00b")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(request("/missing", "Connection: close\r\n")), StartsWith("HTTP/1.1 400"));
}

TEST_F(ServerTest, ASlowRequestIsClosed) {
  ServerLimits limits;
  limits.request = Seconds(0.3);
  start(limits);
  Client slow(server->port());
  slow.send("GET / HTTP/1.1\r\nHo");
  slow.read_to_end();
  EXPECT_TRUE(slow.is_closed());
  EXPECT_THAT(ask(request("/", "Connection: close\r\n")), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServerTest, AClientThatDoesNotReadIsClosedAndOthersAreServed) {
  ServerLimits limits;
  limits.response = Seconds(0.5);
  limits.connections = 2;
  start(limits);
  Client lazy(server->port());
  lazy.send(request("/large"));
  Client other(server->port());
  other.send(request("/other"));
  EXPECT_THAT(other.read_until("path /other"), HasSubstr("path /other"));
  // There is room for one more only when the lazy one has been closed.
  bool has_room = false;
  for (int i = 0; i < 1000 && !has_room; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_room = ask(request("/", "Connection: close\r\n")).starts_with("HTTP/1.1 200");
  }
  EXPECT_TRUE(has_room);
}

TEST_F(ServerTest, MoreConnectionsThanTheLimitAreClosed) {
  ServerLimits limits;
  limits.connections = 2;
  start(limits);
  Client one(server->port()), two(server->port());
  one.send(request("/one"));
  two.send(request("/two"));
  one.read_until("path /one");
  two.read_until("path /two");
  Client three(server->port());
  three.read_to_end();
  EXPECT_TRUE(three.is_closed());
  one.send(request("/again"));
  EXPECT_THAT(one.read_until("path /again"), HasSubstr("path /again"));
}

TEST_F(ServerTest, EventsTellWhatChanges) {
  start();
  Client client(server->port());
  client.send(request("/api/events?place=mine"));
  EXPECT_THAT(client.read_until("retry"), HasSubstr("Content-Type: text/event-stream"));
  feed.tell({"other", "result.json", false});  // of no interest
  feed.tell({"other", "run.json", true});
  feed.tell({"mine", "<b>\n\"", false});
  EXPECT_THAT(client.read_until("mine"), HasSubstr("\"other\": [\"run.json\"]"));
  const std::string all = client.read_until("<b>");
  EXPECT_THAT(all, HasSubstr(R"("mine": ["<b>\n\""])"));
  EXPECT_THAT(all, testing::Not(HasSubstr("result.json")));
}

TEST_F(ServerTest, AStreamThatIsNotReadCostsNothingAndDelaysNobody) {
  start();
  Client lazy(server->port()), other(server->port());
  lazy.send(request("/api/events?place=" + std::string(2000, 'x')));
  lazy.read_until("retry");
  other.send(request("/api/events"));
  other.read_until("retry");
  for (int i = 0; i < 2000; ++i) feed.tell({std::string(1000, 'y') + std::to_string(i % 50), "run.json", true});
  feed.tell({"the end", "run.json", true});
  EXPECT_THAT(other.read_until("the end"), HasSubstr("the end"));
}

TEST_F(ServerTest, FollowsWhatPagesLookAt) {
  start();
  {
    Client client(server->port());
    client.send(request("/api/events?place=a&place=b"));
    client.read_until("retry");
    feed.tell({"a", "x", false});
    client.read_until("data: ");
    EXPECT_THAT(feed.followed(), testing::ElementsAre("a", "b"));
  }
  for (int i = 0; i < 1000 && !feed.followed().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(feed.followed().empty());
}

TEST_F(ServerTest, MorePagesThanTheLimitAreRefused) {
  ServerLimits limits;
  limits.streams = 1;
  start(limits);
  Client one(server->port());
  one.send(request("/api/events"));
  one.read_until("retry");
  EXPECT_THAT(ask(request("/api/events")), StartsWith("HTTP/1.1 503"));
}

TEST_F(ServerTest, StopsWithConnectionsOpen) {
  start();
  Client one(server->port()), two(server->port());
  one.send(request("/api/events"));
  one.read_until("retry");
  two.send("GET /");
  server->stop();
  thread.join();
}

TEST_F(ServerTest, AnAddressInUseAndABadCertificateAreErrors) {
  start();
  ServerOptions options;
  options.port = server->port();
  EXPECT_THROW(Server(options, handle, feed), EngineError);
  options.port = 0;
  options.certificate = options.key = "nonsense";
  EXPECT_THROW(Server(options, handle, feed), ConfigError);
  options.certificate = make_certificate("127.0.0.1").certificate;
  options.key = make_certificate("127.0.0.1").key;  // another one's
  EXPECT_THROW(Server(options, handle, feed), ConfigError);
  options.certificate = options.key = "";
  options.host = "no such host";
  EXPECT_THROW(Server(options, handle, feed), ConfigError);
}

}  // namespace
}  // namespace lockstep::dashboard
