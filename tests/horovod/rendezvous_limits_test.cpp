// Clients of the rendezvous that mean no good, or are too many.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "rendezvous_fixture.h"

namespace lockstep::horovod {
namespace {

TEST_F(RendezvousTest, BadRequestsAreAnswered) {
  open(1);
  EXPECT_EQ(status(ask("nonsense\r\n\r\n")), 400);
  EXPECT_EQ(status(ask("GET /one HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")), 400);
  EXPECT_EQ(status(ask("GET /../etc HTTP/1.1\r\nHost: evil\r\n\r\n")), 400);
  EXPECT_EQ(status(ask(request("PATCH", "/a/b"))), 405);
  EXPECT_EQ(status(ask("GET /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + std::string(10'000, 'x'))), 431);
  EXPECT_EQ(status(ask("PUT /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000\r\n\r\n")), 413);
  EXPECT_EQ(get("/rank_and_size/a:0"), "404") << "no elastic job";
}

TEST_F(RendezvousTest, ASlowClientIsSentAway) {
  open(1);
  Client slow(server->port());
  slow.say("PUT /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhal");
  serve();
  EXPECT_EQ(server->deadline(), time + 5s);
  time += 4s;
  slow.say("f");
  serve();
  EXPECT_FALSE(slow.closed);
  time += 1s;
  serve();
  EXPECT_EQ(status(slow.heard()), 408);
  EXPECT_TRUE(slow.closed);
  EXPECT_EQ(server->deadline(), std::nullopt);
  EXPECT_EQ(get("/a/b"), "404");
}

TEST_F(RendezvousTest, OneThatDoesNotTakeItsAnswerIsSentAway) {
  open(1);
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) {
    Client writer(server->port());
    std::string text = request("PUT", "/s/" + std::to_string(i), large.substr(500'000));
    for (; !text.empty(); text.erase(0, 40'000)) {
      writer.say(text.substr(0, 40'000));
      serve();
    }
  }
  std::vector<Client> deaf;
  for (int i = 0; i < 8; ++i) {
    deaf.emplace_back(server->port());
    deaf.back().say(request("GET", "/s/" + std::to_string(i)));
  }
  serve();
  time += 5s;
  serve();
  EXPECT_EQ(server->deadline(), std::nullopt) << "nobody is left";
}

TEST_F(RendezvousTest, TheStoreIsBounded) {
  RendezvousOptions options;
  options.hosts = {"a"};
  options.most_bytes = 1000;
  open(std::move(options));
  EXPECT_EQ(put("/s/1", std::string(500, 'x')), 200);
  EXPECT_EQ(put("/s/2", std::string(500, 'x')), 507);
  EXPECT_EQ(put("/s/1", std::string(600, 'y')), 200) << "in place of the first";
  int keys = 0;
  while (put("/t/" + std::to_string(keys)) == 200) ASSERT_LT(++keys, 10) << "keys are not free";
  ask(request("DELETE", "/s/1"));
  EXPECT_EQ(put("/s/2", std::string(500, 'x')), 200);
}

TEST_F(RendezvousTest, ManyConnectionsWaitTheirTurn) {
  RendezvousOptions options;
  options.hosts = {"a"};
  options.most_connections = 4;
  open(std::move(options));
  std::vector<Client> silent;
  for (int i = 0; i < 4; ++i) silent.emplace_back(server->port());
  serve();
  Client honest(server->port());
  honest.say(request("GET", "/a/b"));
  serve();
  EXPECT_EQ(honest.heard(), "");
  silent.front().hang_up();
  serve();
  EXPECT_EQ(status(honest.heard()), 404);
  Client next(server->port());
  next.say(request("GET", "/a/b"));
  serve();
  EXPECT_EQ(status(next.heard()), 404);
}

/// As many as a system with so few descriptors bears.
TEST_F(RendezvousTest, MostDescriptorsAreForOthers) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  open(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<Client> silent;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 16; ++i) silent.emplace_back(server->port());
  serve();
  Client honest(server->port());
  honest.say(request("GET", "/a/b"));
  serve();
  EXPECT_EQ(honest.heard(), "");
  silent.pop_back();
  serve();
  EXPECT_EQ(status(honest.heard()), 404);
  for (int i = 0; i < 8; ++i) silent.emplace_back(server->port());
  serve();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("16 connections are open"), std::string::npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

/// A forked child, of a callback perhaps, holds copies of all sockets.
TEST_F(RendezvousTest, WhatAChildHoldsWakesNobody) {
  open(2, true);
  join_all(2);
  Client listener = held(listens(0));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    listener.hang_up();
    (void)!::write(ready[1], "!", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  for (const int end : ready) ::close(end);
  listener.hang_up();
  serve();
  pollfd item{server->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, 50), 0) << "the connection is forgotten";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

/// Pieces of requests in any order, from clients that come and go: every client is answered or closed in the end, what
/// is stored is what somebody put whole, and an honest client is served all the while.
TEST_F(RendezvousTest, SurvivesWhateverComes) {
  for (const bool elastic : {false, true}) {
    open(2, elastic);
    if (elastic) join_all(2);
    std::mt19937 random(elastic ? 1 : 2);
    const std::vector<std::string> pieces = {"GET ",
                                             "PUT ",
                                             "DELETE ",
                                             "/global/rank_0",
                                             at("/rank_and_size/", "a:0"),
                                             "/rank_and_size/a:0",
                                             ours("/losses/", 1),
                                             "/losses/x",
                                             at("/worker_addresses/", "a:0"),
                                             ours("/done/", 1),
                                             "/done/-" + secret(),
                                             "/done/-1",
                                             "/done/77777777777777",
                                             "/global/0",
                                             "/",
                                             " HTTP/1.1",
                                             "\r\n",
                                             "\r\n\r\n",
                                             "Host: 127.0.0.1\r\n",
                                             "Content-Length: 3\r\n",
                                             "Content-Length: 9999999\r\n",
                                             "abc",
                                             std::string(300, '\xff'),
                                             std::string("\0", 1),
                                             request("GET", "/global/0"),
                                             request("PUT", "/a/b", "c")};
    std::vector<Client> clients;
    for (int round = 0; round < 3000; ++round) {
      const auto choice = random() % 10;
      if (clients.size() < 40 && choice < 3) clients.emplace_back(server->port());
      if (clients.empty()) continue;
      const auto at = random() % clients.size();
      if (choice < 8)
        clients[at].try_to_say(pieces[random() % pieces.size()]);
      else
        clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(at));
      serve();
      if (round % 100 == 0 && !elastic) {
        ASSERT_EQ(put("/honest/key", "value"), 200);
        ASSERT_EQ(get("/honest/key"), "value");
      }
    }
    time += 5s;
    serve();
    time += 5s;
    serve();
    if (!elastic)
      for (Client& client : clients) {
        client.heard();
        EXPECT_TRUE(client.closed);
      }
    clients.clear();
    serve();
    EXPECT_EQ(server->deadline(), std::nullopt);
  }
}

}  // namespace
}  // namespace lockstep::horovod
