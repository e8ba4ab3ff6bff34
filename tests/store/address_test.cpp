#include "store/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include <cstdlib>

#include "scratch.h"

namespace lockstep::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    Address::parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Address, HasParts) {
  const auto address = Address::parse("s3://bucket/some//prefix/?endpoint_override=localhost:9000&scheme=http");
  EXPECT_EQ(address.scheme, "s3");
  EXPECT_EQ(address.authority, "bucket");
  EXPECT_THAT(address.path, ElementsAre("some", "prefix"));
  EXPECT_EQ(address.query, "endpoint_override=localhost:9000&scheme=http");
  EXPECT_EQ(address.text(), "s3://bucket/some/prefix?endpoint_override=localhost:9000&scheme=http");
  EXPECT_EQ((address / "run/logs").text(),
            "s3://bucket/some/prefix/run/logs?endpoint_override=localhost:9000&scheme=http");
  EXPECT_EQ(address.parent()->text(), "s3://bucket/some?endpoint_override=localhost:9000&scheme=http");
  EXPECT_EQ(address.name(), "prefix");
  EXPECT_EQ(Address::parse("s3://bucket").parent(), std::nullopt);
  for (const char* text : {"gs://bucket/x", "abfs://container@account.dfs.core.windows.net/x", "hdfs://name:8020/x",
                           "hdfs:///x", "s3://bucket", "s3://bucket/a b+c/\xc3\xa4"})
    EXPECT_EQ(Address::parse(text).text(), text);
}

TEST(Address, RefusesWhatCannotBeUsed) {
  EXPECT_THAT(refusal("bucket/x"), HasSubstr("SCHEME://BUCKET/PATH"));
  EXPECT_THAT(refusal("ftp://host/x"), HasSubstr("s3://, gs://"));
  EXPECT_THAT(refusal("s3:///x"), HasSubstr("no bucket"));
  EXPECT_THAT(refusal("s3://bucket/a/../b"), HasSubstr("parts . and .."));
  EXPECT_THAT(refusal("s3://bucket/a\nb"), HasSubstr("control characters"));
  EXPECT_THAT(refusal("s3://bucket/" + std::string(300, 'x')), HasSubstr("255"));
  for (const char* text : {"s3://key:secret@bucket/x", "s3://bucket/x?access_key=key&secret_key=secret"}) {
    EXPECT_THAT(refusal(text), HasSubstr("credentials"));
    EXPECT_THAT(refusal(text), Not(HasSubstr("=secret")));
    EXPECT_THAT(refusal(text), Not(HasSubstr(":secret")));
  }
}

TEST(Address, OnlyAddressesOfStoresAreAddresses) {
  for (const char* text : {"s3://b", "gs://b/x", "ftp://x"}) EXPECT_TRUE(is_address(text));
  for (const char* text : {"", "x", "/a/b", "file:///a", "C:/x"}) EXPECT_FALSE(is_address(text));
}

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("LOCKSTEP_CACHE_PATH", (scratch_.path() / "cache").c_str(), 1);
    for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}) ::unsetenv(name);
  }
  void TearDown() override {
    ::unsetenv("LOCKSTEP_CACHE_PATH");
    ::unsetenv("AWS_ENDPOINT_URL");
  }
  Scratch scratch_;
};

TEST_F(Cache, PlacesAndAddressesBelongTogether) {
  for (const char* text : {"s3://bucket/a/run", "s3://bucket/a/run?region=x", "gs://bucket/a", "hdfs:///a/b"}) {
    const auto address = Address::parse(text);
    const auto place = cached(address);
    EXPECT_EQ(address_of(place)->text(), text);
    EXPECT_EQ(address_of(place / "logs")->text(), (address / "logs").text());
    EXPECT_EQ(shown(place), text);
    EXPECT_EQ(local_path(text), place);
  }
  EXPECT_EQ(address_of(scratch_.path()), std::nullopt);
  EXPECT_EQ(address_of(scratch_.path() / "cache"), std::nullopt);
  EXPECT_EQ(address_of(scratch_.path() / "cache" / "unknown" / "x"), std::nullopt);
  EXPECT_EQ(shown("/a/b"), "/a/b");
}

TEST_F(Cache, IsPrivate) {
  const auto place = cached(Address::parse("s3://bucket"));
  struct stat info {};
  ASSERT_EQ(::stat(place.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ::chmod(place.c_str(), 0777);
  EXPECT_THROW(cached(Address::parse("s3://bucket/x")), StorageError);
}

TEST_F(Cache, ServersOfOtherEndpointsAreOtherStores) {
  const auto address = Address::parse("s3://bucket/a");
  const auto there = cached(address);
  ::setenv("AWS_ENDPOINT_URL", "http://localhost:9000", 1);
  EXPECT_NE(cached(address), there);
  EXPECT_EQ(cached(Address::parse("gs://bucket/a")).parent_path().filename().string().substr(0, 10), "gs-bucket-");
}

TEST_F(Cache, FilesAreLocal) {
  EXPECT_EQ(local_path("file:///a/b%20c"), "/a/b c");
  EXPECT_EQ(local_path("file://localhost/a"), "/a");
  EXPECT_EQ(local_path("a/b"), "a/b");
  EXPECT_THROW(local_path("file://elsewhere/a"), ConfigError);
}

}  // namespace
}  // namespace lockstep::store
