#include "dashboard/http.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dashboard/certificate.h"
#include "dashboard/page.h"
#include "dashboard/page_json.h"

namespace lockstep::dashboard {
namespace {

TEST(ParseTargetTest, DecodesPathAndQuery) {
  const auto target = parse_target("/api/run?id=a%2Fb+c&id=%C3%A9&empty&=x");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/api/run");
  const Request request{"GET", target->path, target->query, "", "", ""};
  EXPECT_EQ(request.parameters("id"), (std::vector<std::string>{"a/b c", "é"}));
  EXPECT_EQ(request.parameter("empty"), "");
  EXPECT_EQ(request.parameter("missing"), "");
  EXPECT_EQ(target->query.size(), 3U);
}

TEST(ParseTargetTest, RefusesWhatIsMalformed) {
  for (const char* target :
       {"", "api", "*", "http://host/", "/%", "/%4", "/%zz", "/a%00b", "/?a=%00", "/%ff", "/?a=%c3"})
    EXPECT_FALSE(parse_target(target)) << target;
}

TEST(PageJsonTest, NamesNumbersThatJsonLacks) {
  EXPECT_EQ(page_json({{"a", {NAN, INFINITY, -INFINITY, 0.5}}}), R"({"a": ["NaN", "Infinity", "-Infinity", 0.5]})");
}

TEST(PageTest, LoadsNothingFromElsewhere) {
  const std::string page(kPage);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_EQ(page.find("<script src"), page.npos);
  EXPECT_EQ(page.find("<link rel=\"stylesheet\""), page.npos);
  EXPECT_EQ(page.find("@import"), page.npos);
  EXPECT_NE(page_policy().find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page_policy().find("unsafe"), std::string::npos);
}

TEST(CertificateTest, IsNewEachTimeAndHasItsFingerprint) {
  const Certificate one = make_certificate("10.0.0.5"), other = make_certificate("host.example");
  EXPECT_NE(one.fingerprint, other.fingerprint);
  EXPECT_EQ(one.fingerprint.size(), 95U);
  EXPECT_EQ(fingerprint_of(one.certificate), one.fingerprint);
  EXPECT_EQ(fingerprint_of("no certificate"), "");
  EXPECT_EQ(sha256_base64("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
}

}  // namespace
}  // namespace lockstep::dashboard
