#include "horovod/rendezvous.h"

#include <lockstep/error.h>

#include "rendezvous_fixture.h"

namespace lockstep::horovod {
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
  const Value place = server->begin_of(2);
  EXPECT_EQ(place["address"], "127.0.0.1");
  EXPECT_EQ(place["port"], server->port());
  EXPECT_EQ(place["host"], "b");
  EXPECT_EQ(place["rank"], 2);
  EXPECT_EQ(place["size"], 3);
  EXPECT_EQ(place["local_rank"], 0);
  EXPECT_EQ(place["cross_rank"], 1);
  EXPECT_EQ(place["cross_size"], 2);
}

TEST_F(RendezvousTest, ListensOnTheAddressOfTheAttempt) {
  open(1);
  const std::string elsewhere = "127.0.0.2";
  server->begin_attempt(1, 1, elsewhere);
  EXPECT_EQ(server->begin_of(0)["address"], elsewhere);
  EXPECT_FALSE(Client(server->port()).connected());
  Client client(server->port(), elsewhere.c_str());
  client.say("PUT /global/0 HTTP/1.1\r\nHost: " + elsewhere + "\r\nContent-Length: 1\r\n\r\nx");
  serve();
  EXPECT_EQ(status(client.heard()), 200);
  EXPECT_THROW(server->begin_attempt(2, 1, "no address"), EngineError);
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
  begin_attempt();
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
  other.begin_attempt(0, 1, sys::kLoopback);
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

}  // namespace
}  // namespace lockstep::horovod
