// Clients of an elastic job's rendezvous that do not know its secret.

#include <string>

#include "horovod/rendezvous.h"
#include "rendezvous_fixture.h"

namespace lockstep::horovod {
namespace {

class StrangersTest : public RendezvousTest {
 protected:
  void open_job() {
    open(3, true);
    join_all(3);
  }
};

TEST_F(StrangersTest, EveryAttemptHasASecretOfItsOwn) {
  open_job();
  const std::string first = secret();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(server->begin_of(2)["host"], "a-" + first);
  begin_attempt();
  EXPECT_EQ(secret().size(), 32u);
  EXPECT_NE(secret(), first);
  open(1);
  EXPECT_EQ(server->begin_of(0)["host"], "a") << "nobody asks for rounds";
  EXPECT_FALSE(server->begin_of(0).contains("secret"));
}

TEST_F(StrangersTest, NobodyIsPutOutByThem) {
  open_job();
  Client listener = held(listens(0));
  std::string wrong = secret();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const std::string& key :
       {std::string("0"), std::string("0-"), "0-" + wrong, "0-" + secret() + "0", secret(), "-" + secret()})
    EXPECT_EQ(get("/losses/" + key), "404") << key;
  EXPECT_EQ(listener.heard(), "");
  EXPECT_FALSE(listener.closed);
  server->lose(1, time);
  EXPECT_EQ(status(listener.heard()), 200);
}

TEST_F(StrangersTest, TheyCannotAskForARound) {
  open_job();
  for (const char* place : {"a:1", "a-:1", "a", "a-0123456789abcdef0123456789abcdef:1", "b:1"})
    EXPECT_EQ(get(std::string("/rank_and_size/") + place), "-1,-1,-1,-1,-1,-1") << place;
  EXPECT_EQ(get("/rank_and_size/a-" + secret()), "-1,-1,-1,-1,-1,-1") << "no place on the host is named";
  EXPECT_EQ(put("/global/0", "value"), 200);
  EXPECT_EQ(get("/global/0"), "value") << "no round has begun";
  time += 1h;
  serve();
  EXPECT_TRUE(stuck.empty());
}

TEST_F(StrangersTest, OneThatAsksWithoutALossWaits) {
  open_job();
  Client asking = held(asks("a:1"));
  time += 1h;
  serve();
  EXPECT_TRUE(stuck.empty());
  EXPECT_EQ(server->deadline(), std::nullopt);
  EXPECT_EQ(asking.heard(), "");
}

TEST_F(StrangersTest, WhatTheySayInTheNameOfARankDoesNotCount) {
  RendezvousOptions options;
  options.hosts.assign(2, "a");
  options.elastic = true;
  options.min_workers = 1;
  open(std::move(options));
  join_all(2);
  server->lose(1, time);
  Client zero = held(asks("a:0"));
  time += 500ms;
  serve();
  EXPECT_EQ(body(zero.heard()), "0,1,0,1,0,1");
  EXPECT_EQ(put("/done/0"), 200);
  serve();
  EXPECT_TRUE(needless.empty());
  EXPECT_EQ(put(ours("/done/", 0)), 200);
  EXPECT_EQ(needless, std::vector<int>{1});
}

}  // namespace
}  // namespace lockstep::horovod
