// The rendezvous of elastic jobs: rounds of workers that are lost and replaced.

#include <cstring>

#include "rendezvous_fixture.h"

namespace lockstep::horovod {
namespace {

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
  EXPECT_EQ(server->begin_of(0)["rank"], 1);
  EXPECT_EQ(server->begin_of(0)["local_rank"], 1);
  Client heir = held(asks("a:1"));
  Client fresh = arrives(0);
  EXPECT_EQ(body(heir.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(status(fresh.heard()), 200);
}

TEST_F(RendezvousTest, ASurvivorOfABrokenRoundIsNotTakenForTheNewWorker) {
  open(2, true);
  join_all(2);
  server->lose(0, time);
  EXPECT_NE(server->begin_of(0)["port"], server->port());
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
  begin_attempt();
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
}  // namespace lockstep::horovod
