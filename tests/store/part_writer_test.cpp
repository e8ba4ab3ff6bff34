#include "store/part_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "scratch.h"
#include "store/hash.h"
#include "store/safetensors.h"
#include "store/verify.h"
#include "sys/faulty_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PartWriterTest : public testing::Test {
 protected:
  Scratch scratch_;
  const fs::path partial_ = scratch_ / "checkpoint_000000.partial";

  PartWriter writer() { return {sys::files(), partial_}; }

  /// Are these, with their sizes and hashes, the files that are there?
  void expect_there(const std::vector<FileEntry>& entries) {
    EXPECT_EQ(to_text(compare_sizes(partial_, entries, sys::files())), "");
    for (const auto& entry : entries) EXPECT_EQ(entry.xxh3_128, hash_of(bytes_of(slurp(partial_ / entry.name))));
  }
};

std::vector<std::string> names(const std::vector<FileEntry>& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

TEST_F(PartWriterTest, WritesFilesFromMemory) {
  const std::string large(3'000'000, 'x');
  const std::vector<MemoryFile> files = {{"a", bytes_of("hello")}, {"b/c/d", bytes_of(large)}, {"b/e", {}}};
  const auto entries = writer().write_files(files);
  EXPECT_THAT(names(entries), ElementsAre("a", "b/c/d", "b/e"));
  EXPECT_EQ(slurp(partial_ / "a"), "hello");
  expect_there(entries);
}

TEST_F(PartWriterTest, WhatItMakesIsTheOwnersOnly) {
  const mode_t before = ::umask(0);
  const std::vector<MemoryFile> files = {{"d/a", bytes_of("hello")}};
  writer().write_files(files);
  ::umask(before);
  EXPECT_EQ(fs::status(partial_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(partial_ / "d").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(partial_ / "d/a").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(PartWriterTest, BadNamesAreRefusedBeforeAnythingIsWritten) {
  for (const char* name : {"../a", "/a", "", "manifest.json", "x.partial", "a/./b"}) {
    const std::vector<MemoryFile> files = {{"good", bytes_of("x")}, {name, bytes_of("x")}};
    EXPECT_THROW(writer().write_files(files), ConfigError) << name;
  }
  const std::vector<MemoryFile> twice = {{"a", bytes_of("x")}, {"a", bytes_of("y")}};
  EXPECT_THAT(message_of<ConfigError>([&] { writer().write_files(twice); }), HasSubstr("twice"));
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(PartWriterTest, ADictIsTwoOrThreeFiles) {
  const std::vector<Tensor> tensors = {{"w", "F32", {2}, bytes_of("12345678")}};
  const auto entries = writer().write_dict({R"({"w": {"$tensor": "w"}})", tensors, bytes_of("pickled")});
  EXPECT_THAT(names(entries), ElementsAre("data.json", "tensors.safetensors", "objects.pkl"));
  expect_there(entries);
  const std::string file = slurp(partial_ / "tensors.safetensors");
  ASSERT_EQ(parse_safetensors(bytes_of(file), "t").size(), 1u);
  EXPECT_EQ(slurp(partial_ / "objects.pkl"), "pickled");
}

TEST_F(PartWriterTest, ADictWithoutArraysIsOneFile) {
  EXPECT_THAT(names(writer().write_dict({"{}", {}, std::nullopt})), ElementsAre("data.json"));
}

TEST_F(PartWriterTest, InMemoryADictIsTheSameFiles) {
  const std::vector<Tensor> tensors = {{"w", "F32", {2}, bytes_of("12345678")}, {"v", "U8", {1}, bytes_of("x")}};
  const DictParts parts{"{}", tensors, bytes_of("pickled")};
  writer().write_dict(parts);
  const auto files = to_files(parts);
  ASSERT_EQ(files.size(), 3u);
  for (const auto& [name, bytes] : files)
    EXPECT_EQ(slurp(partial_ / name), std::string(bytes.begin(), bytes.end())) << name;
}

TEST_F(PartWriterTest, CopiesADirectory) {
  spit(scratch_ / "source/a", "1");
  spit(scratch_ / "source/sub/b", std::string(1'000'000, 'b'));
  fs::create_symlink("sub/b", scratch_ / "source/link");
  const auto entries = writer().copy_directory(scratch_ / "source");
  EXPECT_THAT(names(entries), ElementsAre("a", "link", "sub/b"));
  expect_there(entries);
  EXPECT_FALSE(fs::is_symlink(partial_ / "link"));
}

TEST_F(PartWriterTest, AnEmptyDirectoryIsACheckpointWithoutFiles) {
  fs::create_directories(scratch_ / "source");
  EXPECT_TRUE(writer().copy_directory(scratch_ / "source").empty());
  EXPECT_TRUE(fs::is_directory(partial_));
}

TEST_F(PartWriterTest, DoesNotCopyWhatIsOutside) {
  spit(scratch_ / "secret", "x");
  fs::create_directory(scratch_ / "source");
  fs::create_symlink("../secret", scratch_ / "source/link");
  EXPECT_THAT(message_of<StorageError>([&] { writer().copy_directory(scratch_ / "source"); }), HasSubstr("outside"));
  EXPECT_THROW(writer().copy_directory(scratch_ / "nowhere"), StorageError);
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(PartWriterTest, RefusesOthersManifestsAndUnfinishedFiles) {
  spit(scratch_ / "one/manifest.json", "{\"mine\": 1}");
  EXPECT_THAT(message_of<ConfigError>([&] { writer().copy_directory(scratch_ / "one"); }), HasSubstr("another name"));
  spit(scratch_ / "two/x.partial", "");
  EXPECT_THROW(writer().copy_directory(scratch_ / "two"), ConfigError);
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(PartWriterTest, CopiesACommittedCheckpointWithoutItsManifest) {
  const fs::path source = scratch_ / "source";
  spit(source / "a", "hello");
  Manifest manifest;
  manifest.files = {{"a", 5, hash_of(bytes_of("hello"))}};
  spit(source / "manifest.json", to_text(manifest));
  EXPECT_THAT(names(writer().copy_directory(source)), ElementsAre("a"));

  spit(source / "a", "hallo");
  fs::remove_all(partial_);
  EXPECT_THAT(message_of<StorageError>([&] { writer().copy_directory(source); }), HasSubstr("differs"))
      << "damage spreads";
  fs::remove_all(partial_);
  fs::remove(source / "a");
  EXPECT_THAT(message_of<StorageError>([&] { writer().copy_directory(source); }), HasSubstr("missing"));
}

TEST_F(PartWriterTest, RanksShareTheDirectory) {
  const std::vector<MemoryFile> first = {{"shared/rank_0", bytes_of("0")}, {"same", bytes_of("zero")}};
  const std::vector<MemoryFile> second = {{"shared/rank_1", bytes_of("1")}, {"same", bytes_of("one")}};
  const RankFiles zero{0, writer().write_files(first)};
  const RankFiles one{1, writer().write_files(second)};
  EXPECT_EQ(slurp(partial_ / "shared/rank_1"), "1");
  EXPECT_EQ(slurp(partial_ / "same"), "zero") << "the first one's is left alone";
  EXPECT_EQ(one.files[1].xxh3_128, "");
  EXPECT_THAT(message_of<ConfigError>([&] {
                merge_parts({zero, one});
              }),
              HasSubstr("ranks 0 and 1 both wrote \"same\""));
}

/// After the return no power cut can take anything away: every file is synced after its last write, every directory
/// after the last name that was put into it, the deeper one first.
TEST_F(PartWriterTest, EverythingIsDurableOnReturn) {
  sys::FaultyFiles files(sys::files());
  const std::string large(2'000'000, 'x');
  const std::vector<MemoryFile> contents = {{"a", bytes_of("x")}, {"d/e/f", bytes_of(large)}, {"d/g", bytes_of("y")}};
  PartWriter(files, partial_).write_files(contents);
  const auto log = files.log();
  std::map<fs::path, std::size_t> dirty, synced;
  for (std::size_t i = 0; i < log.size(); ++i) {
    const auto& [name, path, target] = log[i];
    if (name == "write") dirty[path] = i;
    if ((name == "open" || name == "make_directory") && path != partial_) dirty[path.parent_path()] = i;
    if (name == "sync" || name == "sync_directory") synced[path] = i;
  }
  EXPECT_EQ(dirty.size(), 6u);
  for (const auto& [path, when] : dirty) EXPECT_GT(synced[path], when) << path;
  EXPECT_LT(synced[partial_ / "d/e"], synced[partial_ / "d"]);
  EXPECT_LT(synced[partial_ / "d"], synced[partial_]);
}

TEST_F(PartWriterTest, AFullDiskIsToldBeforeLargeFilesAreWritten) {
  sys::FaultyFiles files(sys::files(), {3, sys::FaultyFiles::Fault::fail, ENOSPC});
  const std::string large(2'000'000, 'x');
  const std::vector<MemoryFile> contents = {{"large", bytes_of(large)}};
  EXPECT_THAT(message_of<StorageError>([&] { PartWriter(files, partial_).write_files(contents); }),
              testing::AllOf(HasSubstr("No space left"), HasSubstr("large")));
  EXPECT_EQ(files.log().back().name, "reserve");
}

}  // namespace
}  // namespace lockstep::store
