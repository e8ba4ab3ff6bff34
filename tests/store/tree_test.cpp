#include "store/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include "scratch.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const fs::path& root, Links links = Links::follow_inside) {
  std::vector<std::string> names;
  for (const auto& file : list_tree(sys::files(), root, links)) names.push_back(file.name);
  return names;
}

TEST(FileName, GoodOnes) {
  for (const char* name :
       {"a", "a/b/c.txt", ".hidden", "..a", "a..", "a b", "ünï", "sub/manifest.json", "partial", "a.partial.txt"})
    EXPECT_EQ(file_name_problem(name), "") << name;
}

TEST(FileName, BadOnes) {
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/../b"), std::string(".."), std::string("."),
        std::string("a//b"), std::string("a/"), std::string("./a"), std::string("manifest.json"),
        std::string("a.partial"), std::string("a.partial/b"), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\xff"), std::string(300, 'x'), std::string(2000, '/')})
    EXPECT_NE(file_name_problem(name), "") << name;
}

TEST(Tree, ListsFilesBelowSorted) {
  Scratch scratch;
  for (const char* name : {"b", "a/z", "a/b/c", "a.txt"}) spit(scratch / name, name);
  fs::create_directory(scratch / "empty");
  EXPECT_THAT(names(scratch.path()), ElementsAre("a.txt", "a/b/c", "a/z", "b"));
  EXPECT_EQ(list_tree(sys::files(), scratch.path(), Links::keep)[1].size, 5u);
  EXPECT_THROW(names(scratch / "none"), StorageError);
}

TEST(Tree, FollowsLinksThatStayInside) {
  Scratch scratch;
  spit(scratch / "root/real/file", "12");
  fs::create_symlink("real/file", scratch / "root/to_file");
  fs::create_directory_symlink("real", scratch / "root/to_dir");
  EXPECT_THAT(names(scratch / "root"), ElementsAre("real/file", "to_dir/file", "to_file"));
  EXPECT_EQ(list_tree(sys::files(), scratch / "root", Links::follow_inside)[2].size, 2u);
  const auto kept = list_tree(sys::files(), scratch / "root", Links::keep);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[1].kind, sys::FileKind::symlink);
  fs::create_directory_symlink("root", scratch / "link_to_root");
  EXPECT_EQ(names(scratch / "link_to_root").size(), 3u) << "the root itself may be a link";
}

TEST(Tree, RefusesLinksThatLeaveItDangleOrGoRound) {
  Scratch scratch;
  spit(scratch / "outside", "secret");
  const auto refused = [&](const char* target) {
    fs::create_directories(scratch / "root/sub");
    fs::create_symlink(target, scratch / "root/sub/link");
    const auto message = message_of<StorageError>([&] { names(scratch / "root"); });
    fs::remove(scratch / "root/sub/link");
    return message;
  };
  EXPECT_THAT(refused("../../outside"), HasSubstr("outside the checkpoint"));
  EXPECT_THAT(refused("/etc/passwd"), HasSubstr("outside the checkpoint"));
  EXPECT_THAT(refused("nothing"), HasSubstr("No such file"));
  EXPECT_THAT(refused(".."), HasSubstr("circle"));
  EXPECT_THAT(refused("."), HasSubstr("circle"));
  // A name that only begins like the root's is outside it.
  spit(scratch / "root2/x", "");
  EXPECT_THAT(refused("../../root2/x"), HasSubstr("outside the checkpoint"));
}

TEST(Tree, TwoLinksThatPointAtEachOthersDirectoriesGoRound) {
  Scratch scratch;
  fs::create_directories(scratch / "a");
  fs::create_directories(scratch / "b");
  fs::create_directory_symlink("../b", scratch / "a/to_b");
  fs::create_directory_symlink("../a", scratch / "b/to_a");
  EXPECT_THAT(message_of<StorageError>([&] { names(scratch.path()); }), HasSubstr("circle"));
}

TEST(Tree, RefusesPipes) {
  Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<StorageError>([&] { names(scratch.path()); }), HasSubstr("files only"));
  EXPECT_EQ(list_tree(sys::files(), scratch.path(), Links::keep)[0].kind, sys::FileKind::other);
}

}  // namespace
}  // namespace lockstep::store
