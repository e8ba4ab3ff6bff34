// What connects to the head agent's port and does not belong there.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>

#include "agent/peer_link.h"
#include "base/version.h"
#include "cluster_harness.h"
#include "sys/secret.h"

namespace lockstep::agent {
namespace {

namespace head_link = engine::head_link;
using testing::HasSubstr;

class Strangers : public ClusterHarness {
 protected:
  void SetUp() override {
    ClusterHarness::SetUp();
    listen();
  }

  sys::Descriptor connect_to_head() const {
    sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }

  /// Whether the head closes the connection within the time.
  static bool is_closed(int socket, std::chrono::milliseconds within) {
    const Instant deadline = now() + within;
    std::array<char, 4096> dropped;
    for (pollfd item{socket, POLLIN, 0}; now() < deadline;)
      if (::poll(&item, 1, 100) == 1 && ::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) return true;
    return false;
  }

  /// The head is unharmed: another agent can join and works.
  void expect_all_is_well() {
    const auto run = run_on(join("friend").node);
    run->start(0, {{cmd("print", "fine")}});
    run->expect<wire::AttemptEnded>();
    EXPECT_EQ(run->log_[0], "fine");
  }

  struct Answer {
    bool proved = false;
    std::string refused, closed;
  };
  /// Connects as an agent with this secret, sends this on stream 0, and waits for the end of the connection.
  Answer talk(const Bytes& secret, const Bytes& message) {
    Answer answer;
    Loop loop;
    Timer timer(loop);
    std::unique_ptr<PeerLink> link;
    PeerLink::Handlers handlers;
    handlers.proved = [&] {
      answer.proved = true;
      link->tell_bytes(message);
    };
    handlers.message = [&](std::span<const std::uint8_t> bytes) {
      const auto given = wire::decode<wire::HeadToNode>(bytes);
      if (const auto* refused = std::get_if<wire::Refused>(&given)) answer.refused = refused->why;
      if (std::holds_alternative<wire::Welcome>(given)) loop.stop();
    };
    handlers.data = [](auto, auto) {};
    handlers.closed = [&](const std::string& why) {
      answer.closed = why;
      loop.stop();
    };
    link = std::make_unique<PeerLink>(loop, connect_to_head(), secret, TlsStream::Side::node, std::move(handlers));
    timer.set(kPatience, [&] { loop.stop(); });
    loop.run();
    return answer;
  }

  static wire::Hello hello() {
    wire::Hello hello;
    hello.version = lockstep::kVersion;
    hello.name = "stranger";
    return hello;
  }
};

TEST_F(Strangers, AnotherSecretGetsNoFurtherThanTheHandshake) {
  Bytes other = secret();
  other.back() ^= 1;
  const Answer answer = talk(other, wire::encode(hello()));
  EXPECT_FALSE(answer.proved);
  EXPECT_NE(answer.closed, "");
  expect_all_is_well();
}

TEST_F(Strangers, AnAgentWithAnotherSecretEndsAndSaysWhy) {
  const std::string file = write_secret("other", "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  const sys::Process agent = start_joining("b", file);
  expect_end(agent.pidfd.get(), 10s, "the agent");
  EXPECT_EQ(sys::take_exit(agent.pidfd.get(), true)->code, 1);
  EXPECT_THAT(output("b"), HasSubstr("the secret may be that of another run"));
  expect_all_is_well();
}

TEST_F(Strangers, AnotherVersionIsRefusedAndBothAreNamed) {
  auto mine = hello();
  mine.version = "99.8.7";
  const Answer answer = talk(secret(), wire::encode(mine));
  EXPECT_TRUE(answer.proved);
  EXPECT_THAT(answer.refused, HasSubstr("the node has Lockstep 99.8.7"));
  EXPECT_THAT(answer.refused, HasSubstr(std::string("the head has ") + lockstep::kVersion));
  EXPECT_THAT(notice<head_link::TurnedAway>().why, HasSubstr("99.8.7"));
  expect_all_is_well();
}

TEST_F(Strangers, ASecondAgentWithANodesNameIsRefusedAndTheFirstGoesOn) {
  const auto run = run_on(join("b").node);
  run->start(0, {{cmd("echo", 1)}});
  const sys::Process second = start_joining("b", folder_ / "secret", "second");
  expect_end(second.pidfd.get(), 10s, "the second agent");
  EXPECT_EQ(sys::take_exit(second.pidfd.get(), true)->code, 1);
  EXPECT_THAT(output("second"), HasSubstr("there is a node \"b\" already"));
  run->send(wire::ToWorker{0, 0, {1}});
  run->expect<wire::AttemptEnded>();
}

TEST_F(Strangers, HelloesThatAreNoneEndTheConnection) {
  auto huge = hello();
  huge.name.assign(200'000, 'x');
  auto unprintable = hello();
  unprintable.name = "a\x1b[2J";
  EXPECT_NE(talk(secret(), wire::encode(huge)).closed, "");
  EXPECT_THAT(talk(secret(), wire::encode(unprintable)).refused, HasSubstr("name"));
  EXPECT_NE(talk(secret(), wire::encode(wire::Beat{1})).closed, "");
  EXPECT_NE(talk(secret(), Bytes{0xff, 0x00, 0x12}).closed, "");
  EXPECT_NE(talk(secret(), {}).closed, "");
  expect_all_is_well();
}

TEST_F(Strangers, GarbageIsDropped) {
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    const auto socket = connect_to_head();
    Bytes garbage(1 + random() % 3000);
    for (auto& byte : garbage) byte = static_cast<std::uint8_t>(random());
    if (i % 2 == 0) {  // as if it were a handshake
      const Bytes record{22, 3, 1, static_cast<std::uint8_t>(garbage.size() >> 8),
                         static_cast<std::uint8_t>(garbage.size())};
      garbage.insert(garbage.begin(), record.begin(), record.end());
    }
    ::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    ::shutdown(socket.get(), SHUT_WR);
    EXPECT_TRUE(is_closed(socket.get(), 10s));
  }
  expect_all_is_well();
}

TEST_F(Strangers, WhoSendsNothingOrSlowlyIsDroppedInTime) {
  const auto silent = connect_to_head(), slow = connect_to_head();
  const Instant deadline = now() + 10s;
  bool is_dropped = false;
  for (const Bytes part{22}; !is_dropped && now() < deadline;) {
    ::send(slow.get(), part.data(), part.size(), MSG_NOSIGNAL);
    is_dropped = is_closed(slow.get(), 300ms);
  }
  EXPECT_TRUE(is_dropped);
  EXPECT_TRUE(is_closed(silent.get(), 10s));
  expect_all_is_well();
}

TEST_F(Strangers, ManyOfThemKeepNobodyOut) {
  std::vector<sys::Descriptor> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(connect_to_head());
  expect_all_is_well();
}

TEST(Secrets, MustBeReadableByTheirOwnerAlone) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "a_secret";
  const std::string good(64, 'a');
  const auto reading = [&](const std::string& text, mode_t mode) -> std::string {
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    try {
      EXPECT_EQ(sys::read_secret_file(path), Bytes(32, 0xaa));
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(reading(good, 0600), "");
  EXPECT_EQ(reading(" " + good + "\n", 0400), "");
  EXPECT_THAT(reading(good, 0640), HasSubstr("chmod 600"));
  EXPECT_THAT(reading(good, 0604), HasSubstr("chmod 600"));
  for (const std::string& bad : {std::string(), good.substr(1), good + "a", std::string(64, 'g')})
    EXPECT_THAT(reading(bad, 0600), HasSubstr("64 hexadecimal digits")) << bad;
  std::filesystem::remove(path);
  EXPECT_THROW(sys::read_secret_file(path), ConfigError);
}

}  // namespace
}  // namespace lockstep::agent
