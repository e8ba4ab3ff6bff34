#include "horovod/http.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::horovod {
namespace {

constexpr const char* kAddress = "127.0.0.1";

int read(std::string_view text) { return RequestReader(kAddress).feed(text); }

TEST(RequestReader, AsHorovodSendsIt) {
  RequestReader reader(kAddress);
  const std::string body("\0\xff\r\n\r\n", 6);
  EXPECT_EQ(reader.feed("PUT /global/rank_0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\n\r\n" + body), 200);
  EXPECT_EQ(reader.request().method, "PUT");
  EXPECT_EQ(reader.request().scope, "global");
  EXPECT_EQ(reader.request().key, "rank_0");
  EXPECT_EQ(reader.request().body, body);
}

TEST(RequestReader, HoweverItIsCut) {
  const std::string text = "PUT /a/b HTTP/1.1\r\nhost: 127.0.0.1:8080\r\ncontent-length:  3 \r\n\r\nxyz";
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    RequestReader reader(kAddress);
    EXPECT_EQ(reader.feed(text.substr(0, cut)), 0);
    EXPECT_EQ(reader.feed(text.substr(cut)), 200);
    EXPECT_EQ(reader.request().body, "xyz");
  }
}

TEST(RequestReader, WithoutALengthThereIsNoBody) {
  EXPECT_EQ(read("GET /a/b HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"), 200);
  EXPECT_EQ(read("DELETE /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nmore that is ignored"), 200);
}

TEST(RequestReader, RefusesWhatIsWrong) {
  const auto line = [](const std::string& first) { return read(first + "\r\nHost: 127.0.0.1\r\n\r\n"); };
  for (const char* first :
       {"", "GET", "GET /a/b", "GET a/b HTTP/1.1", "GET / HTTP/1.1", "GET /a HTTP/1.1", "GET /a/ HTTP/1.1",
        "GET //b HTTP/1.1", "GET /a/b/c HTTP/1.1", "GET /a/b HTTP/2", "GET /a/b c HTTP/1.1", "GET /a/\x01 HTTP/1.1"})
    EXPECT_EQ(line(first), 400) << first;
  EXPECT_EQ(line("POST /a/b HTTP/1.1"), 405);
  const auto header = [](const std::string& each) {
    return read("PUT /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\n" + each + "\r\n\r\n");
  };
  for (const char* each : {"no colon", ": x", "Content-Length: -1", "Content-Length: 1x", "Content-Length: ",
                           "Content-Length: 1\r\nContent-Length: 1", "Transfer-Encoding: chunked", "Host: 127.0.0.1"})
    EXPECT_EQ(header(each), 400) << each;
}

TEST(RequestReader, AnotherHostIsNotServed) {
  EXPECT_EQ(read("GET /a/b HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(read("GET /a/b HTTP/1.1\r\nHost: example.org\r\n\r\n"), 400);
}

TEST(RequestReader, IsBounded) {
  EXPECT_EQ(read("GET /a/" + std::string(600, 'x') + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), 413);
  EXPECT_EQ(read("GET /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + std::string(9000, 'x')), 431);
  EXPECT_EQ(read("PUT /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048577\r\n\r\n"), 413);
  EXPECT_EQ(read("PUT /a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
  RequestReader endless(kAddress);
  int fed = 0;
  while (endless.feed(std::string(1000, 'y')) == 0) ASSERT_LT(++fed, 20);
}

TEST(RequestReader, SurvivesWhateverItIsFed) {
  const std::string good = "PUT /global/rank_0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhello";
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 32));
      }
      if (text.empty()) text = "x";
    }
    RequestReader reader(kAddress);
    const std::size_t cut = random() % (text.size() + 1);
    reader.feed(text.substr(0, cut));
    if (reader.feed(text.substr(cut)) != 200) continue;
    EXPECT_FALSE(reader.request().scope.empty());
    EXPECT_FALSE(reader.request().key.empty());
    EXPECT_LE(reader.request().body.size(), text.size());
  }
}

TEST(Response, IsSpeltExactlySo) {
  EXPECT_EQ(response_text(200, "abc"), "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
  EXPECT_EQ(response_text(404), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

}  // namespace
}  // namespace lockstep::horovod
