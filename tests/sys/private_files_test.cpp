#include "sys/private_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../store/scratch.h"

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string problem_with(FileKind kind, std::uint32_t owner, std::uint32_t mode) {
  return message_of<StorageError>([&] { check_private({kind, 0, owner, mode, 1}, "/shared/run1"); });
}

TEST(CheckPrivate, WantsWhatIsOursAlone) {
  const std::uint32_t us = ::geteuid();
  check_private({FileKind::file, 0, us, 0600, 1}, "x");
  check_private({FileKind::directory, 0, us, 0755, 2}, "x");
  EXPECT_THAT(problem_with(FileKind::symlink, us, 0777), AllOf(HasSubstr("\"/shared/run1\""), HasSubstr("is a link")));
  EXPECT_THAT(problem_with(FileKind::other, us, 0600), HasSubstr("neither a file nor a directory"));
  EXPECT_THAT(problem_with(FileKind::directory, us + 7, 0755),
              AllOf(HasSubstr("(uid " + std::to_string(us + 7) + ")"), HasSubstr("(uid " + std::to_string(us) + ")"),
                    HasSubstr("mode 0755"), HasSubstr("another name or storage_path"), HasSubstr("cp -r")));
  for (const std::uint32_t mode : {0770, 0722, 0777})
    EXPECT_THAT(problem_with(FileKind::directory, us, mode),
                AllOf(HasSubstr("other users can write"), HasSubstr("chmod -R go-w \"/shared/run1\"")));
}

TEST(CheckPrivate, StorageThatIsTrustedMayHaveOddOwnersAndModesButNoLinks) {
  ::setenv("LOCKSTEP_TRUST_STORAGE", "1", 1);
  check_private({FileKind::file, 0, ::geteuid() + 7, 0666, 1}, "x");
  EXPECT_THROW(check_private({FileKind::symlink, 0, ::geteuid(), 0777, 1}, "x"), StorageError);
  ::unsetenv("LOCKSTEP_TRUST_STORAGE");
}

class PrivateFilesTest : public testing::Test {
 protected:
  Scratch scratch_;
  const fs::path root_ = scratch_ / "run";
  const fs::path victim_ = scratch_ / "victim";
  PrivateFiles private_;
  Files& files_ = private_;

  void SetUp() override {
    fs::create_directory(root_);
    spit(victim_, "precious");
  }
};

TEST_F(PrivateFilesTest, DoesWhatOtherFilesDo) {
  private_.enter(root_ / "");
  files_.make_directories(root_ / "a/b");
  files_.replace_file(root_ / "a/b/c", "text");
  EXPECT_EQ(files_.read_text(root_ / "a/b/c"), "text");
  EXPECT_EQ(files_.info(root_ / "a/b/c").size, 4u);
  EXPECT_EQ(files_.info(root_ / "a/none/c").kind, FileKind::none);
  EXPECT_EQ(files_.info(root_ / "a/b/c/d").kind, FileKind::none);
  EXPECT_TRUE(files_.link(root_ / "a/b/c", root_ / "second"));
  EXPECT_EQ(files_.info(root_ / "second").names, 2u);
  files_.rename(root_ / "second", scratch_ / "outside");
  EXPECT_EQ(slurp(scratch_ / "outside"), "text");
  EXPECT_FALSE(files_.make_directory(root_));
  std::vector<std::string> names;
  for (const auto& item : files_.list(root_)) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("a"));
  files_.sync_directory(root_);
  files_.remove_tree(root_ / "a");
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_THAT(message_of<StorageError>([&] { files_.read_file(root_ / "no/file"); }), HasSubstr("No such file"));
}

TEST_F(PrivateFilesTest, FollowsNoLinkBelowTheRoot) {
  fs::create_directory(scratch_ / "elsewhere");
  fs::create_symlink(scratch_ / "elsewhere", root_ / "directory");
  fs::create_symlink(victim_, root_ / "file");
  fs::create_symlink(victim_, root_ / "replaced.partial");
  private_.enter(root_);
  for (const auto mode : {OpenMode::read, OpenMode::create, OpenMode::append})
    EXPECT_THROW(files_.open(root_ / "file", mode), StorageError);
  EXPECT_THROW(files_.open(root_ / "directory/new", OpenMode::create), StorageError);
  EXPECT_THROW(files_.make_directory(root_ / "directory"), StorageError);
  EXPECT_THROW(files_.list(root_ / "directory"), StorageError);
  EXPECT_THROW(files_.open(root_ / "../victim", OpenMode::read), StorageError);
  files_.replace_file(root_ / "replaced", "new");
  EXPECT_EQ(slurp(root_ / "replaced"), "new");
  EXPECT_EQ(slurp(victim_), "precious");
  EXPECT_TRUE(fs::is_empty(scratch_ / "elsewhere"));
}

TEST_F(PrivateFilesTest, ADirectoryThatIsExchangedLaterIsNotUsed) {
  private_.enter(root_);
  fs::rename(root_, scratch_ / "moved");
  fs::create_directory(scratch_ / "home");
  fs::create_symlink(scratch_ / "home", root_);
  files_.replace_file(root_ / "run.json", "new");
  EXPECT_EQ(slurp(scratch_ / "moved/run.json"), "new");
  EXPECT_TRUE(fs::is_empty(scratch_ / "home"));
}

TEST_F(PrivateFilesTest, EntersOnlyADirectoryOfOurs) {
  fs::create_symlink(root_, scratch_ / "link");
  EXPECT_THAT(message_of<StorageError>([&] { private_.enter(scratch_ / "link"); }), HasSubstr("is a link"));
  EXPECT_THROW(private_.enter(victim_), StorageError);
  EXPECT_THROW(private_.enter(scratch_ / "none"), StorageError);
  ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
  EXPECT_THAT(message_of<StorageError>([&] { private_.enter(root_); }), HasSubstr("mode 0777"));
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  private_.enter(root_);
}

TEST_F(PrivateFilesTest, OpensNoFileThatOthersCanWrite) {
  spit(root_ / "file", "x");
  ASSERT_EQ(::chmod((root_ / "file").c_str(), 0666), 0);
  private_.enter(root_);
  EXPECT_THAT(message_of<StorageError>([&] { files_.read_file(root_ / "file"); }), HasSubstr("chmod -R go-w"));
  EXPECT_THROW(files_.open(root_ / "file", OpenMode::append), StorageError);
  files_.replace_file(root_ / "file", "ours");
  EXPECT_EQ(files_.read_text(root_ / "file"), "ours");
}

TEST_F(PrivateFilesTest, SomebodyElsesAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kNobody = 65534;
  spit(root_ / "file", "x");
  ASSERT_EQ(::chown((root_ / "file").c_str(), kNobody, kNobody), 0);
  PrivateFiles other;
  private_.enter(root_);
  EXPECT_THAT(message_of<StorageError>([&] { files_.read_file(root_ / "file"); }), HasSubstr("uid 65534"));
  ASSERT_EQ(::chown(root_.c_str(), kNobody, kNobody), 0);
  EXPECT_THAT(message_of<StorageError>([&] { other.enter(root_); }), HasSubstr("uid 65534"));
}

}  // namespace
}  // namespace lockstep::sys
