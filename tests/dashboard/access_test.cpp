#include "dashboard/access.h"

#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

const Access kAccess{"secret", {"127.0.0.1", "localhost", "[::1]"}, false};

Request request_with(const std::string& token) { return {"GET", "/", {{"token", token}}, "127.0.0.1:8484", "", ""}; }

int status_of(const Request& request, const Access& access = kAccess) {
  const auto refused = access.refusal(request);
  return refused ? refused->status : 200;
}

TEST(AccessTest, TheTokenIsNeeded) {
  EXPECT_EQ(status_of(request_with("secret")), 200);
  for (const char* wrong : {"", "secre", "secret ", "secrett", "SECRET"})
    EXPECT_EQ(status_of(request_with(wrong)), 401);
}

TEST(AccessTest, TheTokenMayBeInTheHeader) {
  Request request = request_with("");
  request.authorization = "Bearer secret";
  EXPECT_EQ(status_of(request), 200);
  for (const char* wrong : {"Bearer wrong", "Basic secret", "secret", "Bearer "}) {
    request.authorization = wrong;
    EXPECT_EQ(status_of(request), 401) << wrong;
  }
}

TEST(AccessTest, WithoutATokenNobodyIsAllowed) {
  EXPECT_EQ(status_of(request_with(""), {"", {"127.0.0.1"}, false}), 401);
}

TEST(AccessTest, HostMustBeOursWithAnyPort) {
  Request request = request_with("secret");
  for (const char* ours : {"127.0.0.1", "127.0.0.1:9", "LOCALHOST:8484", "[::1]:8484", "[::1]"}) {
    request.host = ours;
    EXPECT_EQ(status_of(request), 200) << ours;
  }
  for (const char* other : {"", "evil.example", "evil.example:8484", "127.0.0.1.evil.example", "127.0.0.1:8484@evil",
                            "localhost:84 84", "[::2]:8484", "127.0.0.1:"}) {
    request.host = other;
    EXPECT_EQ(status_of(request), std::string_view(other) == "127.0.0.1:" ? 200 : 421) << other;
  }
}

TEST(AccessTest, OriginMustBeTheSamePage) {
  Request request = request_with("secret");
  request.origin = "http://127.0.0.1:8484";
  EXPECT_EQ(status_of(request), 200);
  for (const char* other : {"null", "http://127.0.0.1:8485", "https://127.0.0.1:8484", "http://localhost:8484",
                            "http://evil.example", "http://127.0.0.1:8484.evil.example"}) {
    request.origin = other;
    EXPECT_EQ(status_of(request), 403) << other;
  }
  request.origin = "https://127.0.0.1:8484";
  EXPECT_EQ(status_of(request, {"secret", {"127.0.0.1"}, true}), 200);
}

TEST(AccessTest, OnlyReading) {
  Request request = request_with("secret");
  request.method = "HEAD";
  EXPECT_EQ(status_of(request), 200);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", ""}) {
    request.method = method;
    EXPECT_EQ(status_of(request), 405) << method;
  }
}

}  // namespace
}  // namespace lockstep::dashboard
