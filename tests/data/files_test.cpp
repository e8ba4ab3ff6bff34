#include "data/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include "base/s3_query.h"
#include "data/file_systems.h"
#include "folder.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const File& file : find_files(paths)) names.emplace_back(file.name());
  return names;
}

TEST(Files, AreFoundByNameDirectoryAndPattern) {
  const Folder folder;
  for (const char* name : {"b.csv", "a.csv", "c.txt", ".hidden", "_mark", "deep/d.csv", "deep/er/e.csv", "_no/f.csv"})
    folder.write(name, "x");
  EXPECT_THAT(names_of({folder.path("c.txt"), folder.path("a.csv")}), ElementsAre("c.txt", "a.csv"));
  EXPECT_THAT(names_of({folder.path("")}), ElementsAre("a.csv", "b.csv", "c.txt", "d.csv", "e.csv"));
  EXPECT_THAT(names_of({folder.path("deep")}), ElementsAre("d.csv", "e.csv"));
  EXPECT_THAT(names_of({folder.path("*.csv")}), ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(names_of({folder.path("*/[de].csv")}), ElementsAre("d.csv"));
  EXPECT_THAT(names_of({folder.path("**/?.csv")}), ElementsAre("f.csv", "a.csv", "b.csv", "d.csv", "e.csv"));
  EXPECT_THAT(names_of({folder.path("d*/**/*.csv")}), ElementsAre("d.csv", "e.csv"));
}

TEST(Files, AMissingOneIsNamed) {
  const Folder folder;
  std::filesystem::create_directory(folder.path("empty"));
  for (const char* name : {"missing.csv", "missing/*.csv", "*.csv", "empty"}) try {
      find_files({folder.path(name)});
      ADD_FAILURE() << name;
    } catch (const StorageError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  EXPECT_THROW(find_files({}), ConfigError);
  EXPECT_THROW(find_files({"nothing://bucket/x"}), ConfigError);
  EXPECT_THROW(find_files({"s3:///x"}), ConfigError);
  EXPECT_THROW(find_files({""}), ConfigError);
}

TEST(Files, PatternsMatchWholeComponents) {
  EXPECT_TRUE(matches("a/*.csv", "a/b.csv"));
  EXPECT_FALSE(matches("a/*.csv", "a/b/c.csv"));
  EXPECT_FALSE(matches("a/*.csv", "a/.csv"));
  EXPECT_TRUE(matches("a/**/c", "a/c"));
  EXPECT_TRUE(matches("a/**/c", "a/b/b/c"));
  EXPECT_FALSE(matches("a/**/c", "a/b/b/d"));
  EXPECT_FALSE(matches("a", "a/b"));
}

TEST(Files, S3TakesItsAddressFromTheEnvironment) {
  EXPECT_EQ(s3_query("", "", ""), "");
  EXPECT_EQ(s3_query("", "", "eu-west-1"), "region=eu-west-1");
  EXPECT_EQ(s3_query("", "http://127.0.0.1:9000/", ""),
            "endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1");
  EXPECT_EQ(s3_query("endpoint_override=a:1", "http://b:2", "r"), "endpoint_override=a:1&region=r");
  EXPECT_EQ(s3_query("region=x", "host:1", "r"), "region=x&endpoint_override=host:1");
}

}  // namespace
}  // namespace lockstep::data
