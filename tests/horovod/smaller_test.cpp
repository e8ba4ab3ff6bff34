// Elastic jobs that go on with fewer workers while a new one is on its way.

#include <array>
#include <string>

#include "horovod/notice.h"
#include "horovod/rendezvous.h"
#include "rendezvous_fixture.h"

namespace lockstep::horovod {
namespace {

const std::string kKey(32, 'k');

/// A worker's server for notices.
class NoticeServer {
 public:
  NoticeServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), generic, size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }

  /// What the worker puts: its address, pickled.
  std::string address(const std::string& host = "127.0.0.1") const {
    const std::string port{static_cast<char>(port_ & 0xff), static_cast<char>(port_ >> 8)};
    return base64("\x80\x05}\x8c\x02lo]\x8c" + std::string(1, static_cast<char>(host.size())) + host + "M" + port +
                  "\x86" + "asC\x20" + kKey + "\x86.");
  }

  bool take() {
    guest_ = sys::Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return static_cast<bool>(guest_);
  }
  std::string heard() {
    std::array<char, 1024> chunk;
    const ssize_t size = ::recv(guest_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    return size > 0 ? std::string(chunk.data(), static_cast<std::size_t>(size)) : "";
  }
  void answer() { EXPECT_EQ(::send(guest_.get(), "ack", 3, MSG_NOSIGNAL), 3); }
  void hang_up() { guest_.reset(); }
  void shut() { listener_.reset(); }

 private:
  sys::Descriptor listener_, guest_;
  int port_ = 0;
};

class SmallerWorldTest : public RendezvousTest {
 protected:
  void open_job(int ranks, int min_workers) {
    RendezvousOptions options;
    options.hosts.assign(static_cast<std::size_t>(ranks), "a");
    options.elastic = true;
    options.min_workers = min_workers;
    open(std::move(options));
    join_all(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(put(at("/worker_addresses/", "a:" + std::to_string(rank)),
                    workers.at(static_cast<std::size_t>(rank)).address()),
                200);
  }

  /// Three ranks, of which the second is away and the others have gone on.
  void go_on_without_one() {
    open_job(3, 2);
    server->lose(1, time);
    Client zero = held(asks("a:0")), two = held(asks("a:2"));
    time += 500ms;
    serve();
    ASSERT_EQ(body(zero.heard()), "0,2,0,2,0,1");
    ASSERT_EQ(body(two.heard()), "1,2,1,2,0,1");
    ASSERT_EQ(left, std::vector<int>{1});
    connect(2);
  }

  /// The notice that has come to a worker, and is answered.
  std::string notice(std::size_t rank) {
    serve();
    if (!workers[rank].take()) return "";
    serve();
    std::string text = workers[rank].heard();
    workers[rank].answer();
    serve();
    return text;
  }

  std::array<NoticeServer, 4> workers;
};

TEST_F(SmallerWorldTest, SurvivorsGoOnWhenTheNewWorkerIsLate) {
  open_job(3, 2);
  put("/global/1", "old");
  server->lose(1, time);
  Client zero = held(asks("a:0")), two = held(asks("a:2"));
  EXPECT_EQ(server->deadline(), time + 500ms);
  time += 499ms;
  serve();
  EXPECT_EQ(zero.heard(), "");
  time += 1ms;
  serve();
  EXPECT_EQ(body(zero.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(body(two.heard()), "1,2,1,2,0,1");
  EXPECT_EQ(left, std::vector<int>{1});
  EXPECT_FALSE(has("/global/1"));
  EXPECT_EQ(put("/global/1", "of the one that was rank 2"), 200);
  EXPECT_EQ(get("/global/1"), "of the one that was rank 2");
  time += 500ms;
  serve();
  EXPECT_EQ(server->deadline(), std::nullopt) << "nothing is to be done until somebody comes";
}

TEST_F(SmallerWorldTest, ANewWorkerIsNotTakenForARenumberedOne) {
  go_on_without_one();
  EXPECT_NE(server->begin_of(1)["port"], server->port());
  EXPECT_EQ(server->begin_of(0)["port"], server->port());
  EXPECT_EQ(put("/global/rank_1", "the renumbered one"), 200);
  Client fresh = arrives(1);
  EXPECT_EQ(fresh.heard(), "") << "held";
  EXPECT_EQ(get("/global/rank_1"), "the renumbered one");
}

TEST_F(SmallerWorldTest, RankZeroIsToldAndTheWorldIsWholeAgain) {
  go_on_without_one();
  Client fresh = arrives(1);
  EXPECT_EQ(notice(0), notice_text(kKey, 1));
  EXPECT_EQ(notice(2), "") << "rank 0 tells the others";
  Client zero = held(asks("a:0"));
  EXPECT_EQ(fresh.heard(), "");
  Client two(server->port());
  two.say(asks("a:1"));
  serve();
  EXPECT_EQ(body(zero.heard()), "0,3,0,3,0,1");
  EXPECT_EQ(body(two.heard()), "2,3,2,3,0,1");
  EXPECT_EQ(status(fresh.heard()), 200);
  EXPECT_EQ(get("/global/rank_1"), "new");
  EXPECT_EQ(back, std::vector<int>{1});
  EXPECT_EQ(server->deadline(), std::nullopt) << "no notice is due any more";
}

TEST_F(SmallerWorldTest, ANoticeIsSentUntilSomebodyComes) {
  go_on_without_one();
  Client fresh = arrives(1);
  EXPECT_EQ(notice(0), notice_text(kKey, 1));
  Seconds pause{0.25};
  for (int count = 2; count < 12; ++count) {
    EXPECT_EQ(server->deadline(), time + ticks(pause)) << count;
    time += ticks(pause) - 1ms;
    EXPECT_EQ(notice(0), "") << count;
    time += 1ms;
    EXPECT_EQ(notice(0), notice_text(kKey, count));
    pause = std::min(2 * pause, Seconds(5.0));
  }
  fresh.hang_up();
  serve();
  EXPECT_EQ(server->deadline(), std::nullopt) << "nobody waits";
}

TEST_F(SmallerWorldTest, AWorkerThatRefusesOrIsSilentIsToldAgain) {
  go_on_without_one();
  Client fresh = arrives(1);
  ASSERT_TRUE(workers[0].take());
  workers[0].hang_up();
  serve();
  time += 250ms;
  serve();
  ASSERT_TRUE(workers[0].take()) << "again";
  serve();
  EXPECT_EQ(workers[0].heard(), notice_text(kKey, 2));
  EXPECT_EQ(server->deadline(), time + 5s) << "until then it may answer";
  time += 5s;
  EXPECT_EQ(notice(0), notice_text(kKey, 3));
  workers[0].shut();
  time += 1s;
  serve();
  EXPECT_GT(server->deadline(), time) << "nobody listens there, and the server is not busy with it";
  EXPECT_EQ(fresh.heard(), "");
}

TEST_F(SmallerWorldTest, OnlyTheLoopbackIsConnectedTo) {
  go_on_without_one();
  EXPECT_EQ(put(at("/worker_addresses/", "a:0"), workers[0].address("10.255.255.1")), 200);
  testing::internal::CaptureStderr();
  Client fresh = arrives(1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no loopback address"), std::string::npos);
  EXPECT_EQ(notice(0), "");
  EXPECT_EQ(server->deadline(), time + 250ms);
  EXPECT_EQ(put(at("/worker_addresses/", "a:0"), "nonsense"), 200) << "what is not understood changes nothing";
}

TEST_F(SmallerWorldTest, NobodyElseSaysWhereNoticesGo) {
  go_on_without_one();
  EXPECT_EQ(put("/worker_addresses/a:0", workers[3].address()), 200);
  Client own(server->begin_of(1)["port"].get<int>());
  own.say(request("PUT", "/worker_addresses/a:0", workers[3].address()));
  serve();
  Client fresh = arrives(1);
  EXPECT_EQ(notice(3), "");
  EXPECT_NE(notice(0), "");
}

TEST_F(SmallerWorldTest, AnHeirIsTheOneThatIsTold) {
  open_job(3, 2);
  server->lose(0, time);
  Client one = held(asks("a:1")), two = held(asks("a:2"));
  time += 500ms;
  serve();
  EXPECT_EQ(body(one.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(body(two.heard()), "1,2,1,2,0,1");
  Client fresh = arrives(0);
  EXPECT_EQ(notice(1), notice_text(kKey, 1));
  Client again = held(asks("a:0"));
  Client other(server->port());
  other.say(asks("a:1"));
  serve();
  EXPECT_EQ(body(again.heard()), "0,3,0,3,0,1");
  EXPECT_EQ(body(other.heard()), "2,3,2,3,0,1");
  EXPECT_EQ(status(fresh.heard()), 200);
}

TEST_F(SmallerWorldTest, ADeathOfOneThatIsAwayIsNoLossToTheOthers) {
  go_on_without_one();
  put("/global/0", "address");
  Client listener = held(listens(0));
  Client fresh = arrives(1);
  const int port = server->begin_of(1)["port"].get<int>();
  EXPECT_EQ(server->lose(1, time), std::nullopt);
  serve();
  EXPECT_EQ(listener.heard(), "");
  EXPECT_EQ(get("/global/0"), "address");
  fresh.heard();
  EXPECT_TRUE(fresh.closed);
  EXPECT_FALSE(Client(port).connected()) << "that was the dead one's";
  EXPECT_EQ(notice(0), notice_text(kKey, 1)) << "it was on its way";
  EXPECT_EQ(server->deadline(), std::nullopt);
  Client next = arrives(1);
  EXPECT_EQ(notice(0), notice_text(kKey, 2));
  EXPECT_EQ(next.heard(), "");
}

TEST_F(SmallerWorldTest, ADeathInTheSmallerWorldIsToldAndTheRestGoesOn) {
  open_job(4, 2);
  server->lose(3, time);
  std::vector<Client> clients;
  for (const char* place : {"a:0", "a:1", "a:2"}) clients.push_back(held(asks(place)));
  time += 500ms;
  serve();
  for (Client& client : clients) EXPECT_EQ(status(client.heard()), 200);
  connect(3);
  Client listener = held(listens(0));
  Client three = arrives(3);
  EXPECT_EQ(server->lose(1, time), std::nullopt);
  EXPECT_EQ(status(listener.heard()), 200);
  Client zero = held(asks("a:0")), two = held(asks("a:2"));
  time += 500ms;
  serve();
  EXPECT_EQ(body(zero.heard()), "0,2,0,2,0,1");
  EXPECT_EQ(body(two.heard()), "1,2,1,2,0,1");
  EXPECT_EQ(left, (std::vector<int>{3, 1}));
  while (workers[0].take()) {
  }
  time += 10s;
  EXPECT_EQ(notice(0), "") << "one of two is not enough";
  Client one = arrives(1);
  EXPECT_NE(notice(0), "");
  Client zero_again = held(asks("a:0"));
  Client two_again(server->port());
  two_again.say(asks("a:1"));
  serve();
  EXPECT_EQ(body(zero_again.heard()), "0,4,0,4,0,1");
  EXPECT_EQ(body(two_again.heard()), "2,4,2,4,0,1");
  EXPECT_EQ(status(one.heard()), 200);
  EXPECT_EQ(status(three.heard()), 200);
  EXPECT_EQ(back, (std::vector<int>{1, 3}));
}

TEST_F(SmallerWorldTest, AReplacedWorkerIsKnownByItsPortInLaterRounds) {
  go_on_without_one();
  Client fresh = arrives(1);
  Client zero = held(asks("a:0"));
  Client two(server->port());
  two.say(asks("a:1"));
  serve();
  EXPECT_EQ(status(fresh.heard()), 200);
  const int own = server->begin_of(1)["port"].get<int>();
  Client speaks(own);
  speaks.say(request("PUT", at("/worker_addresses/", "a:1"), workers[3].address()));
  serve();
  EXPECT_EQ(status(speaks.heard()), 200);
  connect(3);
  EXPECT_EQ(server->lose(0, time), std::nullopt);
  Client heir(own);
  heir.say(asks("a:1"));
  Client other = held(asks("a:2"));
  time += 500ms;
  serve();
  EXPECT_EQ(body(heir.heard()), "0,2,0,2,0,1");
  Client late = arrives(0);
  EXPECT_NE(notice(3), "") << "the address that it gave itself";
}

TEST_F(SmallerWorldTest, WhoIsAwayWhenTheOthersHaveFinishedIsNamed) {
  go_on_without_one();
  EXPECT_EQ(put(ours("/done/", 0)), 200);
  Client fresh = arrives(1);
  EXPECT_EQ(notice(0), "") << "it would not come";
  EXPECT_TRUE(needless.empty());
  EXPECT_EQ(put(ours("/done/", 2)), 200);
  EXPECT_EQ(needless, std::vector<int>{1});
  EXPECT_EQ(put(ours("/done/", 3)), 200) << "there is none, and nothing happens";
  EXPECT_EQ(put("/done/1"), 200) << "nor for one that is not of the job";
  EXPECT_EQ(put("/done/x-" + secret()), 200);
}

TEST_F(SmallerWorldTest, AnAttemptKnowsNothingOfTheOneBefore) {
  go_on_without_one();
  const int port = server->begin_of(1)["port"].get<int>();
  Client fresh = arrives(1);
  begin_attempt();
  serve();
  EXPECT_FALSE(Client(port).connected());
  EXPECT_EQ(server->begin_of(1)["port"], server->port());
  EXPECT_EQ(server->deadline(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::horovod
