#include "storage/checkpoints.h"

#include <arrow/filesystem/localfs.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "storage/objects.h"
#include "storage/requests.h"
#include "store/hashed_file.h"
#include "store/manifest.h"
#include "store/verify.h"
#include "sys/files.h"

namespace lockstep::storage {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointsTest : public testing::Test {
 protected:
  CheckpointsTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~CheckpointsTest() override { fs::remove_all(root_); }

  void spit(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
  }
  std::string slurp(const std::string& name) const {
    std::ifstream file(root_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// A committed checkpoint of these files.
  fs::path checkpoint(const std::string& name, const std::map<std::string, std::string>& files) const {
    store::Manifest manifest;
    manifest.ranks = {0};
    for (const auto& [file, text] : files) {
      spit(name + "/" + file, text);
      manifest.files.push_back(store::hash_file(sys::files(), root_ / name / file, file));
    }
    spit(name + "/manifest.json", store::to_text(manifest));
    return root_ / name;
  }
  Place place(const std::string& name) const {
    return Place{std::make_shared<arrow::fs::LocalFileSystem>(), root_ / "store",
                 store::Address{"hdfs", "tests", {}, ""}, false} /
           name;
  }

  fs::path root_;
  Instant soon_ = now() + 30s;
};

TEST_F(CheckpointsTest, GoThereAndBack) {
  std::string large(40 << 20, 'x');
  for (std::size_t i = 0; i < large.size(); i += 4096) large[i] = static_cast<char>(i >> 12);
  const auto from = checkpoint("checkpoint_000001", {{"data.json", "{}"}, {"deep/large.bin", large}, {"empty", ""}});
  put_checkpoint(from, place("run/checkpoint_000001"), soon_);
  EXPECT_EQ(slurp("store/run/checkpoint_000001/deep/large.bin"), large);
  put_checkpoint(from, place("run/checkpoint_000001"), soon_);  // once more changes nothing
  ASSERT_TRUE(get_checkpoint(place("run/checkpoint_000001"), root_ / "copy", soon_));
  EXPECT_TRUE(store::verify_checkpoint(root_ / "copy").empty());
  EXPECT_EQ(slurp("copy/deep/large.bin"), large);
  EXPECT_FALSE(get_checkpoint(place("run/checkpoint_000002"), root_ / "none", soon_));
  EXPECT_FALSE(fs::exists(root_ / "none"));
}

TEST_F(CheckpointsTest, AnotherOneIsNotReplaced) {
  put_checkpoint(checkpoint("one", {{"x", "1"}}), place("c"), soon_);
  EXPECT_THROW(put_checkpoint(checkpoint("two", {{"x", "2"}}), place("c"), soon_), StorageError);
  EXPECT_EQ(slurp("store/c/x"), "1");
}

TEST_F(CheckpointsTest, DamagedFilesAreNotUploaded) {
  const auto from = checkpoint("one", {{"x", "good"}});
  spit("one/x", "evil");
  try {
    put_checkpoint(from, place("c"), soon_);
    FAIL();
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("could not upload hdfs://tests/c/x"));
    EXPECT_THAT(error.what(), HasSubstr("is damaged: it has the wrong hash"));
  }
  EXPECT_FALSE(fs::exists(root_ / "store/c/manifest.json"));
}

TEST_F(CheckpointsTest, DamagedObjectsAreNotTaken) {
  put_checkpoint(checkpoint("one", {{"x", "good"}}), place("c"), soon_);
  spit("store/c/x", "evil");
  EXPECT_THROW(get_checkpoint(place("c"), root_ / "copy", soon_), StorageError);
  spit("store/c/x", "longer");
  EXPECT_THROW(get_checkpoint(place("c"), root_ / "copy", soon_), StorageError);
  fs::remove(root_ / "store/c/x");
  EXPECT_THROW(get_checkpoint(place("c"), root_ / "copy", soon_), StorageError);
  EXPECT_FALSE(fs::exists(root_ / "copy"));
}

TEST_F(CheckpointsTest, ADamagedCopyIsReplaced) {
  put_checkpoint(checkpoint("one", {{"x", "good"}, {"y", "too"}}), place("c"), soon_);
  ASSERT_TRUE(get_checkpoint(place("c"), root_ / "copy", soon_));
  spit("copy/x", "evil");
  ASSERT_TRUE(get_checkpoint(place("c"), root_ / "copy", soon_));
  EXPECT_EQ(slurp("copy/x"), "good");
}

TEST_F(CheckpointsTest, FilesOfADeadAttemptAreRemoved) {
  spit("store/run/checkpoint_000001/old", "old");
  spit("store/run/checkpoint_000001/x", "half");
  put_checkpoint(checkpoint("one", {{"x", "whole"}}), place("run/checkpoint_000001"), soon_);
  EXPECT_FALSE(fs::exists(root_ / "store/run/checkpoint_000001/old"));
  EXPECT_EQ(slurp("store/run/checkpoint_000001/x"), "whole");
}

TEST_F(CheckpointsTest, WithoutAManifestTheyAreRemoved) {
  put_checkpoint(checkpoint("one", {{"x", "1"}}), place("run/checkpoint_000001"), soon_);
  spit("store/run/checkpoint_000002/x", "half");
  spit("store/run/checkpoint_000003/deep/x", "half");
  spit("store/run/logs/rank_0.log", "text");
  EXPECT_EQ(remove_unfinished(place("run"), soon_), 2);
  EXPECT_TRUE(fs::exists(root_ / "store/run/checkpoint_000001/manifest.json"));
  EXPECT_FALSE(fs::exists(root_ / "store/run/checkpoint_000002"));
  EXPECT_FALSE(fs::exists(root_ / "store/run/checkpoint_000003"));
  EXPECT_TRUE(fs::exists(root_ / "store/run/logs/rank_0.log"));
  remove_checkpoint(place("run/checkpoint_000001"), soon_);
  EXPECT_FALSE(fs::exists(root_ / "store/run/checkpoint_000001"));
  remove_checkpoint(place("run/checkpoint_000001"), soon_);
  EXPECT_EQ(remove_unfinished(place("nothing"), soon_), 0);
}

TEST(Requests, ThatCannotBeDoneAreAnswered) {
  Places places;
  const auto error = [&](const Value& request) { return answer(request, places).value("error", "none"); };
  EXPECT_THAT(error(Value::object()), HasSubstr("patience"));
  EXPECT_THAT(error({{"patience", 1}}), HasSubstr("op"));
  EXPECT_THAT(error({{"patience", 1}, {"op", "fly"}}), HasSubstr("fly"));
  EXPECT_THAT(error({{"patience", 1}, {"op", "list"}, {"at", "x"}}), HasSubstr("SCHEME"));
  EXPECT_THAT(error({{"patience", "long"}, {"op", "list"}}), HasSubstr("not what Lockstep writes"));
  EXPECT_THAT(error({{"patience", 0}, {"op", "put_checkpoint"}, {"at", "hdfs:///x"}, {"from", "relative"}}),
              HasSubstr("relative"));
}

TEST(Requests, OfAnyTypesAreAnswered) {
  Places places;
  std::mt19937 random(5);
  const std::vector<Value> values{nullptr,
                                  1,
                                  -1,
                                  1e300,
                                  true,
                                  "",
                                  "s3://",
                                  "x",
                                  Value::array(),
                                  Value::object(),
                                  Value::array({1, "a"}),
                                  Value::object({{"a", 1}})};
  const std::vector<std::string> operations{"check",          "list",           "put_files",         "get_files",
                                            "put_checkpoint", "get_checkpoint", "remove_checkpoint", "clean",
                                            "nothing"};
  const auto any = [&] { return values[random() % values.size()]; };
  for (int round = 0; round < 3000; ++round) {
    Value request{{"op", operations[random() % operations.size()]}, {"patience", 0}};
    for (const char* name : {"at", "from", "to", "names", "recursive"})
      if (random() % 4 != 0) request[name] = any();
    if (random() % 8 == 0) request["patience"] = any();
    EXPECT_TRUE(answer(request, places).contains("error")) << request;
  }
}

}  // namespace
}  // namespace lockstep::storage
