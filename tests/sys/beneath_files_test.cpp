#include "sys/beneath_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;

class BeneathFilesTest : public testing::Test {
 protected:
  BeneathFilesTest() {
    fs::create_directories(root / "inside/deep");
    fs::create_directories(top / "outside");
    write(root / "inside/file", "inside");
    write(top / "outside/file", "secret");
  }
  ~BeneathFilesTest() override { fs::remove_all(top); }
  static void write(const fs::path& path, const char* text) { std::ofstream(path) << text; }

  fs::path top = fs::canonical(testing::TempDir()) / ("beneath_" + std::to_string(::getpid()));
  fs::path root = top / "root";
};

TEST_F(BeneathFilesTest, ReadsWhatIsBeneathTheRoot) {
  BeneathFiles files(root);
  EXPECT_EQ(files.read_text(root / "inside/file"), "inside");
  EXPECT_EQ(files.list(root).size(), 1U);
  EXPECT_EQ(files.info(root / "inside/deep").kind, FileKind::directory);
  EXPECT_EQ(files.info(root / "inside/nothing").kind, FileKind::none);
}

TEST_F(BeneathFilesTest, TheRootMayBeReachedThroughALink) {
  fs::create_directory_symlink(root, top / "link");
  BeneathFiles files(top / "link");
  EXPECT_EQ(files.root(), root);
  EXPECT_EQ(files.read_text(root / "inside/file"), "inside");
}

TEST_F(BeneathFilesTest, NothingLeadsOut) {
  fs::create_directory_symlink(top / "outside", root / "link");
  fs::create_directory_symlink("../../outside", root / "inside/relative");
  fs::create_symlink(top / "outside/file", root / "file_link");
  BeneathFiles files(root);
  for (const fs::path& path :
       {root / "link/file", root / "inside/relative/file", root / "file_link", root / "../outside/file",
        root / "inside/../../outside/file", top / "outside/file", fs::path("/etc/passwd"), root / "inside/.."})
    EXPECT_THROW(files.read_text(path), StorageError) << path;
  EXPECT_THROW(files.list(root / "link"), StorageError);
  EXPECT_THROW(files.open_directory(root / "link"), StorageError);
  EXPECT_THROW(files.list(top), StorageError);
}

TEST_F(BeneathFilesTest, LinksBetweenDirectoriesWithinTheRootAreFollowed) {
  fs::create_directory_symlink("inside", root / "alias");
  EXPECT_EQ(BeneathFiles(root).read_text(root / "alias/file"), "inside");
}

TEST_F(BeneathFilesTest, RefusesWhatIsNotAFileAndDoesNotWaitForPipes) {
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  BeneathFiles files(root);
  EXPECT_THROW(files.read_text(root / "pipe"), StorageError);
  EXPECT_THROW(files.read_text(root / "inside"), StorageError);
}

TEST_F(BeneathFilesTest, OnlyReads) {
  BeneathFiles files(root);
  EXPECT_THROW(files.open(root / "new", OpenMode::create), StorageError);
  EXPECT_THROW(files.open(root / "inside/file", OpenMode::append), StorageError);
  EXPECT_THROW(files.open(root / "inside/file", OpenMode::replace), StorageError);
  EXPECT_FALSE(fs::exists(root / "new"));
}

TEST_F(BeneathFilesTest, AMissingRootIsAnError) { EXPECT_THROW(BeneathFiles(top / "nothing"), StorageError); }

}  // namespace
}  // namespace lockstep::sys
