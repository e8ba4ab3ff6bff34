#include "sys/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <memory>

#include "../store/scratch.h"
#include "sys/faulty_files.h"

namespace lockstep::sys {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Fault = FaultyFiles::Fault;

std::unique_ptr<Files> make_files(const std::string& kind) {
  if (kind == "posix") return std::make_unique<PosixFiles>();
  if (kind == "faulty") return std::make_unique<FaultyFiles>(files());
  return std::make_unique<FaultyFiles>(files(), FaultyFiles::Plan{1, Fault::short_write, 0, true});
}

/// What every implementation must do.
class FilesTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Files> owned_ = make_files(GetParam());
  Files& files_ = *owned_;
  Scratch scratch_;

  void write(const fs::path& path, OpenMode mode, std::string_view text) {
    OpenFile file = files_.open(path, mode);
    files_.write_all(file, bytes_of(text));
    files_.sync(file);
    files_.close(std::move(file));
  }
};

INSTANTIATE_TEST_SUITE_P(All, FilesTest, testing::Values("posix", "faulty", "short_writes"));

TEST_P(FilesTest, CreateWritesANewFileAndRefusesATakenName) {
  const auto path = scratch_ / "a";
  write(path, OpenMode::create, "hello");
  EXPECT_EQ(slurp(path), "hello");
  EXPECT_THAT(message_of<StorageError>([&] { files_.open(path, OpenMode::create); }),
              testing::AllOf(HasSubstr(path.string()), HasSubstr("File exists")));
  EXPECT_EQ(slurp(path), "hello");
}

TEST_P(FilesTest, ReplaceBeginsAnewAndAppendAdds) {
  const auto path = scratch_ / "a";
  write(path, OpenMode::replace, "a long text");
  write(path, OpenMode::replace, "short");
  EXPECT_EQ(slurp(path), "short");
  write(path, OpenMode::append, " and more");
  EXPECT_EQ(slurp(path), "short and more");
}

TEST_P(FilesTest, WritingFollowsNoLink) {
  spit(scratch_ / "victim", "precious");
  fs::create_symlink("victim", scratch_ / "link");
  EXPECT_THROW(files_.open(scratch_ / "link", OpenMode::append), StorageError);
  EXPECT_THROW(files_.open(scratch_ / "link", OpenMode::create), StorageError);
  write(scratch_ / "link", OpenMode::replace, "new");
  EXPECT_EQ(slurp(scratch_ / "link"), "new");
  fs::create_hard_link(scratch_ / "victim", scratch_ / "second");
  write(scratch_ / "second", OpenMode::replace, "new");
  EXPECT_EQ(slurp(scratch_ / "victim"), "precious");
  fs::create_directory(scratch_ / "directory");
  fs::create_symlink("directory", scratch_ / "alias");
  EXPECT_THROW(files_.make_directory(scratch_ / "alias"), StorageError);
  EXPECT_THROW(files_.open(scratch_ / "directory", OpenMode::replace), StorageError);
}

TEST_P(FilesTest, NewFilesAndDirectoriesAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  write(scratch_ / "file", OpenMode::create, "x");
  files_.make_directories(scratch_ / "one/two");
  files_.replace_file(scratch_ / "small", "x");
  ::umask(before);
  const auto mode = [&](const char* name) {
    struct stat status {};
    EXPECT_EQ(::stat((scratch_ / name).c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode("file"), 0600u);
  EXPECT_EQ(mode("small"), 0600u);
  EXPECT_EQ(mode("one"), 0700u);
  EXPECT_EQ(mode("one/two"), 0700u);
}

TEST_P(FilesTest, ReadsBackWhatWasWritten) {
  for (const std::size_t size : {0, 1, 4095, 4096, 3'000'000}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 >> 3);
    files_.replace_file(scratch_ / "f", text);
    EXPECT_EQ(files_.read_text(scratch_ / "f"), text) << size;
    const auto mapping = files_.map(scratch_ / "f");
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size()), text);
  }
  EXPECT_GT(files_.read_file("/proc/self/status").size(), 100u) << "files that claim no size";
}

TEST_P(FilesTest, MissingThingsAreErrorsWithPathAndReason) {
  const auto path = scratch_ / "nowhere/x";
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { files_.read_file(path); }, [&] { files_.open(path, OpenMode::create); }, [&] { files_.map(path); },
           [&] { files_.list(path); }, [&] { files_.remove_file(path); }, [&] { files_.remove_directory(path); },
           [&] { files_.sync_directory(path); }, [&] { files_.make_directory(path); },
           [&] { files_.rename(path, scratch_ / "y"); }})
    EXPECT_THAT(message_of<StorageError>(call),
                testing::AllOf(HasSubstr("nowhere/x"), HasSubstr("No such file or directory")));
}

TEST_P(FilesTest, InfoTellsKindAndSize) {
  spit(scratch_ / "file", "12345");
  fs::create_directory(scratch_ / "dir");
  fs::create_symlink("file", scratch_ / "link");
  fs::create_symlink("nothing", scratch_ / "dangling");
  ASSERT_EQ(::mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(files_.info(scratch_ / "file").kind, FileKind::file);
  EXPECT_EQ(files_.info(scratch_ / "file").size, 5u);
  EXPECT_EQ(files_.info(scratch_ / "dir").kind, FileKind::directory);
  EXPECT_EQ(files_.info(scratch_ / "link").kind, FileKind::file);
  EXPECT_EQ(files_.info(scratch_ / "link", false).kind, FileKind::symlink);
  EXPECT_EQ(files_.info(scratch_ / "dangling").kind, FileKind::none);
  EXPECT_EQ(files_.info(scratch_ / "dangling", false).kind, FileKind::symlink);
  EXPECT_EQ(files_.info(scratch_ / "pipe").kind, FileKind::other);
  EXPECT_EQ(files_.info(scratch_ / "none").kind, FileKind::none);
  EXPECT_EQ(files_.info(scratch_ / "file/below").kind, FileKind::none);

  std::vector<std::string> names;
  for (const auto& item : files_.list(scratch_.path())) {
    names.push_back(item.name);
    EXPECT_EQ(item.kind, files_.info(scratch_ / item.name, false).kind) << item.name;
  }
  EXPECT_THAT(names, ElementsAre("dangling", "dir", "file", "link", "pipe"));
}

TEST_P(FilesTest, OpeningAPipeForReadingDoesNotHang) {
  ASSERT_EQ(::mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(files_.read_file(scratch_ / "pipe").empty());
}

TEST_P(FilesTest, MakeDirectorySaysWhetherItWasNew) {
  EXPECT_TRUE(files_.make_directory(scratch_ / "d"));
  EXPECT_FALSE(files_.make_directory(scratch_ / "d"));
  spit(scratch_ / "f", "");
  EXPECT_THROW(files_.make_directory(scratch_ / "f"), StorageError);
  files_.make_directories(scratch_ / "a/b/../c/");
  EXPECT_EQ(files_.info(scratch_ / "a/c").kind, FileKind::directory);
  files_.make_directories(scratch_ / "a/c");
}

TEST_P(FilesTest, RemoveTreeRemovesAllButFollowsNoLink) {
  spit(scratch_ / "outside/kept", "x");
  spit(scratch_ / "tree/a/b/c", "x");
  spit(scratch_ / "tree/d", "x");
  fs::create_directory_symlink(scratch_ / "outside", scratch_ / "tree/a/link");
  files_.remove_tree(scratch_ / "tree");
  EXPECT_FALSE(fs::exists(scratch_ / "tree"));
  EXPECT_TRUE(fs::exists(scratch_ / "outside/kept"));
  fs::create_directory_symlink(scratch_ / "outside", scratch_ / "link");
  files_.remove_tree(scratch_ / "link");
  EXPECT_TRUE(fs::exists(scratch_ / "outside/kept"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(scratch_ / "link")));
  files_.remove_tree(scratch_ / "not there");
}

TEST_P(FilesTest, ReplaceFileLeavesOnlyTheNewContents) {
  files_.replace_file(scratch_ / "f", "old");
  spit(scratch_ / "f.partial", "left by somebody who was killed");
  files_.replace_file(scratch_ / "f", "new");
  EXPECT_EQ(slurp(scratch_ / "f"), "new");
  EXPECT_FALSE(fs::exists(scratch_ / "f.partial"));
}

TEST(PosixFiles, AFullDiskSaysWhatToDo) {
  OpenFile file = files().open("/dev/full", OpenMode::append);
  EXPECT_THAT(message_of<StorageError>([&] { files().write_all(file, bytes_of("x")); }),
              testing::AllOf(HasSubstr("/dev/full"), HasSubstr("No space left"), HasSubstr("free some space")));
}

TEST(PosixFiles, ReserveSetsRoomAsideWithoutChangingTheSize) {
  Scratch scratch;
  OpenFile file = files().open(scratch / "f", OpenMode::create);
  files().reserve(file, 1 << 20);
  EXPECT_EQ(files().info(scratch / "f").size, 0u);
  files().write_all(file, bytes_of("abc"));
  files().close(std::move(file));
  EXPECT_EQ(slurp(scratch / "f"), "abc");
}

// ---------------------------------------------------------------- faults

std::vector<std::string> names(const std::vector<FaultyFiles::Operation>& log) {
  std::vector<std::string> names;
  for (const auto& operation : log) names.push_back(operation.name);
  return names;
}

TEST(FaultyFiles, RecordsEveryOperation) {
  Scratch scratch;
  FaultyFiles faulty(files());
  faulty.replace_file(scratch / "f", "x");
  EXPECT_THAT(names(faulty.log()), ElementsAre("open", "write", "sync", "close", "rename", "sync_directory"));
  EXPECT_EQ(faulty.operations(), 6u);
  EXPECT_EQ(faulty.log()[4].path, scratch / "f.partial");
  EXPECT_EQ(faulty.log()[4].target, scratch / "f");
}

TEST(FaultyFiles, FailsOnceOrForGood) {
  Scratch scratch;
  FaultyFiles once(files(), {2, Fault::fail, ENOSPC});
  EXPECT_THAT(message_of<StorageError>([&] { once.replace_file(scratch / "f", "x"); }), HasSubstr("No space left"));
  EXPECT_FALSE(fs::exists(scratch / "f.partial")) << "it would take room on a full disk";
  once.replace_file(scratch / "f", "x");
  FaultyFiles lasting(files(), {2, Fault::fail, EIO, true});
  EXPECT_THROW(lasting.replace_file(scratch / "f", "y"), StorageError);
  EXPECT_THROW(lasting.replace_file(scratch / "f", "y"), StorageError);
  EXPECT_EQ(slurp(scratch / "f"), "x");
}

TEST(FaultyFiles, AShortWriteIsOneWriteMore) {
  Scratch scratch;
  FaultyFiles faulty(files(), {2, Fault::short_write});
  faulty.replace_file(scratch / "f", "12345678");
  EXPECT_EQ(slurp(scratch / "f"), "12345678");
  EXPECT_THAT(names(faulty.log()), ElementsAre("open", "write", "write", "sync", "close", "rename", "sync_directory"));
}

int status_of_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(FaultyFiles, KillsTheProcessBeforeTheOperation) {
  Scratch scratch;
  for (const auto& [at, partial, whole] : {std::tuple{1, false, false}, {5, true, false}, {6, false, true}}) {
    const int status = status_of_child([&, at = at] {
      FaultyFiles faulty(files(), {static_cast<std::uint64_t>(at), Fault::kill});
      faulty.replace_file(scratch / "f", "12345678");
    });
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_EQ(fs::exists(scratch / "f.partial"), partial) << at;
    EXPECT_EQ(fs::exists(scratch / "f"), whole) << at;
  }
}

TEST(FaultyFiles, ATornWriteLeavesItsFirstHalf) {
  Scratch scratch;
  const int status = status_of_child([&] {
    FaultyFiles faulty(files(), {2, Fault::torn_write});
    faulty.replace_file(scratch / "f", "12345678");
  });
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(slurp(scratch / "f.partial"), "1234");
}

}  // namespace
}  // namespace lockstep::sys
