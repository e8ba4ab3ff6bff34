#include "driver/rendezvous.h"

#include <lockstep/error.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>

#include "rendezvous_fixture.h"

namespace lockstep::driver {
namespace {

TEST_F(RendezvousTest, PutGetDelete) {
  open(2);
  EXPECT_EQ(get("/global/key"), "404");
  EXPECT_EQ(put("/global/0", std::string("\0\1\2", 3)), 200);
  EXPECT_EQ(put("/global/rank_0", "host"), 200);
  EXPECT_EQ(get("/global/0"), std::string("\0\1\2", 3));
  EXPECT_EQ(get("/local_a/rank_0"), "404") << "another scope";
  EXPECT_EQ(put("/global/0", "other"), 200);
  EXPECT_EQ(get("/global/0"), "other");
  EXPECT_EQ(status(ask(request("DELETE", "/global/0"))), 200);
  EXPECT_FALSE(has("/global/0"));
  EXPECT_EQ(get("/global/rank_0"), "404") << "what belongs to it";
  EXPECT_EQ(status(ask(request("DELETE", "/global/0"))), 200) << "twice does no harm";
}

TEST_F(RendezvousTest, EmptyAndLargeValues) {
  open(1);
  EXPECT_EQ(put("/cross_0/0"), 200);
  EXPECT_EQ(get("/cross_0/0"), "");
  const std::string large(900'000, 'x');
  Client writer(server->port());
  std::string text = request("PUT", "/s/k", large);
  while (!text.empty()) {
    const std::string part = text.substr(0, 50'000);
    writer.say(part);
    text.erase(0, part.size());
    serve();
  }
  EXPECT_EQ(status(writer.heard()), 200);
  Client reader(server->port());
  reader.say(request("GET", "/s/k"));
  while (!reader.closed) {
    serve();
    reader.heard();
  }
  EXPECT_EQ(body(reader.heard()), large);
}

TEST_F(RendezvousTest, SaysWhereARankBelongs) {
  RendezvousOptions options;
  options.hosts = {"a", "a", "b"};
  open(std::move(options));
  const Value place = server->place(2);
  EXPECT_EQ(place["address"], "127.0.0.1");
  EXPECT_EQ(place["port"], server->port());
  EXPECT_EQ(place["host"], "b");
  EXPECT_EQ(place["rank"], 2);
  EXPECT_EQ(place["size"], 3);
  EXPECT_EQ(place["local_rank"], 0);
  EXPECT_EQ(place["cross_rank"], 1);
  EXPECT_EQ(place["cross_size"], 2);
}

TEST_F(RendezvousTest, AnAttemptServesNothingOfTheOneBefore) {
  open(2);
  put("/global/0", "old");
  const int old_port = server->port();
  Client waiting(old_port);
  waiting.say("PUT /global/1 HTTP/1.1\r\n");
  Client unheard(old_port);
  unheard.say(request("PUT", "/global/1", "old"));
  serve();
  Client in_the_queue(old_port);
  in_the_queue.say(request("PUT", "/global/1", "old"));
  server->begin_attempt();
  EXPECT_NE(server->port(), old_port);
  serve();
  waiting.heard();
  EXPECT_TRUE(waiting.closed);
  in_the_queue.heard();
  EXPECT_TRUE(in_the_queue.closed);
  EXPECT_FALSE(Client(old_port).connected());
  EXPECT_FALSE(has("/global/0"));
  EXPECT_FALSE(has("/global/1"));
}

TEST_F(RendezvousTest, AddressesAreWaitedForAWhile) {
  open(2);
  Client early = held(request("GET", "/global/1"));
  Client other = held(request("GET", "/local_a/1"));
  EXPECT_EQ(server->deadline(), time + 500ms);
  put("/global/1", "address");
  EXPECT_EQ(body(early.heard()), "address");
  time += 500ms;
  serve();
  EXPECT_EQ(status(other.heard()), 404);
  EXPECT_TRUE(other.closed);
}

TEST_F(RendezvousTest, TwoRunsKnowNothingOfEachOther) {
  open(1);
  put("/global/rank_0", "mine");
  RendezvousOptions options;
  options.hosts = {"a"};
  Rendezvous other(std::move(options));
  other.begin_attempt();
  Client client(other.port());
  client.say(request("GET", "/global/rank_0"));
  for (int i = 0; i < 3; ++i) other.serve(time);
  EXPECT_EQ(status(client.heard()), 404);
}

TEST_F(RendezvousTest, ClosedWithItsRun) {
  open(1);
  const int port = server->port();
  server.reset();
  EXPECT_FALSE(Client(port).connected());
}

// ---------------------------------------------------------------- those who mean no good

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

// ---------------------------------------------------------------- elastic jobs

TEST_F(RendezvousTest, NewWorkersWaitForEachOther) {
  open(3, true);
  Client first = joins(1), second = joins(0);
  EXPECT_EQ(get("/global/rank_0"), "404");
  Client third(server->port());
  third.say(request("PUT", "/global/rank_2", "a name"));
  serve();
  for (Client* client : {&first, &second, &third}) {
    EXPECT_EQ(status(client->heard()), 200);
    EXPECT_TRUE(client->closed);
  }
  EXPECT_EQ(get("/global/rank_0"), "a name");
  EXPECT_EQ(put("/global/0", "address"), 200) << "from here on it is a store as any";
  EXPECT_EQ(get("/global/0"), "address");
}

TEST_F(RendezvousTest, SurvivorsAreHeldUntilTheNewWorkerIsThere) {
  open(3, true);
  join_all(3);
  put("/global/1", "of the dead");
  EXPECT_EQ(server->lose(1, time), std::nullopt);
  EXPECT_EQ(get("/global/1"), "404") << "nobody waits for those who died";
  Client zero = held(asks("a:0"));
  Client two = held(asks("a:2"));
  EXPECT_EQ(put("/global/2", "late"), 200) << "of the round that broke";
  Client one = arrives(1);
  EXPECT_EQ(status(one.heard()), 200);
  EXPECT_EQ(body(zero.heard()), "0,3,0,3,0,1");
  EXPECT_EQ(body(two.heard()), "2,3,2,3,0,1");
  EXPECT_FALSE(has("/global/2"));
  EXPECT_EQ(get("/global/rank_1"), "new");
}

TEST_F(RendezvousTest, AnHeirOfRankZeroIsToldSo) {
  open(2, true);
  join_all(2);
  EXPECT_EQ(server->lose(0, time), std::nullopt);
  EXPECT_EQ(server->place(0)["rank"], 1);
  EXPECT_EQ(server->place(0)["local_rank"], 1);
  Client heir = held(asks("a:1"));
  Client fresh = arrives(0);
  EXPECT_EQ(body(heir.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(status(fresh.heard()), 200);
}

TEST_F(RendezvousTest, ASurvivorOfABrokenRoundIsNotTakenForTheNewWorker) {
  open(2, true);
  join_all(2);
  server->lose(0, time);
  EXPECT_NE(server->place(0)["port"], server->port());
  EXPECT_EQ(put("/global/rank_1", "said in the round that broke"), 200);
  Client heir = held(asks("a:1"));
  Client fresh = arrives(0);
  EXPECT_EQ(body(heir.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(get("/global/rank_1"), "new");
}

TEST_F(RendezvousTest, ADeathWhileOthersConnectIsTheEndOfAll) {
  open(3, true);
  join_all(3);
  server->lose(1, time);
  Client zero = held(asks("a:0")), two = held(asks("a:2"));
  Client one = arrives(1);
  EXPECT_EQ(body(two.heard()), "2,3,2,3,0,1");
  put("/global_process_set_hash_ab/0", "address");
  connect(2);
  for (const char* path : {"/cross_2_process_set_hash_ab/0", "/cross_0_process_set_hash_ab/0"})
    ask(request("DELETE", path));
  const auto why = server->lose(2, time);
  ASSERT_TRUE(why.has_value()) << "rank 1 has not left its last scope";
  EXPECT_NE(why->find("connecting"), std::string::npos) << *why;
  server->begin_attempt();
  join_all(3);
  for (int rank : {0, 1}) ask(request("DELETE", "/cross_" + std::to_string(rank) + "_process_set_hash_ab/0"));
  EXPECT_EQ(server->lose(2, time), std::nullopt) << "all others have";
}

TEST_F(RendezvousTest, WithoutAnHeirAllBeginAnew) {
  RendezvousOptions options;
  options.hosts = {"a", "b"};
  options.elastic = true;
  open(std::move(options));
  join_all(2);
  ask(request("DELETE", "/cross_0/1"));
  const auto why = server->lose(0, time);
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("on its host"), std::string::npos) << *why;
}

TEST_F(RendezvousTest, StuckRanksAreNamedAndTheRoundGoesOnWithTheirSuccessors) {
  open(4, true);
  join_all(4);
  server->lose(1, time);
  Client zero = held(asks("a:0"));
  Client two = held(asks("a:2"));
  Client one = arrives(1);
  const auto patience = ticks(RendezvousOptions{}.patience);
  EXPECT_EQ(server->deadline(), time + patience);
  time += patience;
  serve();
  EXPECT_EQ(stuck, std::vector<int>{3});
  server->lose(3, time);
  Client three = arrives(3);
  EXPECT_EQ(body(zero.heard()), "0,4,0,4,0,1");
  EXPECT_EQ(body(two.heard()), "2,4,2,4,0,1");
  EXPECT_EQ(status(one.heard()), 200);
  EXPECT_EQ(status(three.heard()), 200);
}

TEST_F(RendezvousTest, OneThatDiesWhileItIsHeldIsNotCounted) {
  open(2, true);
  join_all(2);
  server->lose(1, time);
  Client early = arrives(1);
  early.hang_up();
  serve();
  server->lose(1, time);
  Client zero = held(asks("a:0"));
  Client again = arrives(1);
  EXPECT_EQ(body(zero.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(status(again.heard()), 200);
}

TEST_F(RendezvousTest, LossesAreToldWithThePortsOfWhatBroke) {
  open(2, true);
  join_all(2);
  std::string addresses;
  for (const std::uint16_t port : {1234, 5678}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::string each(sizeof(sockaddr_storage) + 8, '\0');
    std::memcpy(each.data(), &address, sizeof address);
    addresses += each;
  }
  put("/global/0", addresses);
  put("/global/other", "no addresses");
  ask(request("DELETE", "/global/0"));
  Client listener = held(listens(0));
  time += 3600s;
  serve();
  EXPECT_FALSE(listener.closed) << "it may take days";
  server->lose(1, time);
  EXPECT_EQ(body(listener.heard()), "1234,5678");
  Client next = held(listens(0));
  server->lose(1, time);
  EXPECT_EQ(body(next.heard()), "") << "what broke has been told";
}

TEST_F(RendezvousTest, LossesAreToldToRanksThatThereAre) {
  open(2, true);
  join_all(2);
  EXPECT_EQ(get(ours("/losses/", 2)), "404");
  EXPECT_EQ(get(ours("/losses/", -1)), "404");
  EXPECT_EQ(get("/losses/x-" + secret()), "404");
  Client one = held(listens(1));
}

TEST_F(RendezvousTest, OneThatAsksAgainMakesRoom) {
  RendezvousOptions options;
  options.hosts.assign(2, "a");
  options.elastic = true;
  options.most_connections = 2;
  open(std::move(options));
  join_all(2);
  Client first = held(listens(0));
  Client other(server->port());
  serve();
  Client next(server->port());
  next.say(request("GET", "/a/b"));
  serve();
  EXPECT_EQ(next.heard(), "") << "there is no room";
  other.say(listens(0));
  serve();
  EXPECT_EQ(status(next.heard()), 404) << "the first connection was given up";
}

TEST_F(RendezvousTest, AStrangerIsToldThatItHasNoPart) {
  open(2, true);
  join_all(2);
  EXPECT_EQ(get(at("/rank_and_size/", "b:0")), "-1,-1,-1,-1,-1,-1");
  EXPECT_EQ(get(at("/rank_and_size/", "a:7")), "-1,-1,-1,-1,-1,-1");
}

TEST_F(RendezvousTest, AddressesOfWorkersAreAccepted) {
  open(2, true);
  EXPECT_EQ(put(at("/worker_addresses/", "a:0"), "xyz"), 200);
}

}  // namespace
}  // namespace lockstep::driver
