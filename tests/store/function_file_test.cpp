#include "store/function_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/value.h>
#include <sys/stat.h>

#include "scratch.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;

class FunctionFileTest : public testing::Test {
 protected:
  Scratch scratch_;
  const std::string sha256_ = std::string(63, '0') + "a";  // only a name here
  const fs::path shared_ = scratch_ / ".lockstep/functions" / (sha256_ + ".pkl");
  const Bytes large_ = Bytes(kSharedFunction, 7);

  fs::path write(const char* run, const Bytes& bytes, const std::string& sha256) {
    fs::create_directory(scratch_ / run);
    write_function(sys::files(), scratch_ / run, bytes, sha256);
    EXPECT_EQ(sys::files().read_file(scratch_ / run / "function.pkl"), bytes);
    EXPECT_FALSE(fs::exists(scratch_ / run / "function.pkl.partial"));
    return scratch_ / run / "function.pkl";
  }
};

TEST_F(FunctionFileTest, SmallOnesLieInTheirRuns) {
  EXPECT_EQ(fs::hard_link_count(write("a", {1, 2}, sha256_)), 1u);
  EXPECT_FALSE(fs::exists(scratch_ / ".lockstep"));
}

TEST_F(FunctionFileTest, EqualLargeOnesLieOnTheDiskOnce) {
  const auto first = write("a", large_, sha256_);
  const auto second = write("b", large_, sha256_);
  EXPECT_TRUE(fs::equivalent(first, second));
  EXPECT_TRUE(fs::equivalent(first, shared_));
  write("a", large_, sha256_);
  EXPECT_EQ(fs::hard_link_count(first), 3u);
  struct stat status {};
  ASSERT_EQ(::stat((scratch_ / ".lockstep/functions").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);

  // One run's is replaced: the others keep theirs.
  write("b", Bytes(kSharedFunction, 8), std::string(64, 'b'));
  EXPECT_EQ(sys::files().read_file(first), large_);
  EXPECT_EQ(fs::hard_link_count(first), 2u);
}

TEST_F(FunctionFileTest, WhatNoRunHoldsIsRemoved) {
  write("a", large_, sha256_);
  EXPECT_EQ(remove_unused_functions(scratch_.path()), 0u);
  fs::remove_all(scratch_ / "a");
  EXPECT_EQ(remove_unused_functions(scratch_.path()), large_.size());
  EXPECT_FALSE(fs::exists(shared_));

  write("a", large_, sha256_);
  fs::remove_all(scratch_ / "a");
  write("b", Bytes(kSharedFunction, 8), std::string(64, 'b'));
  EXPECT_FALSE(fs::exists(shared_)) << "a new one clears up";
  EXPECT_EQ(remove_unused_functions(scratch_ / "nothing"), 0u);
}

TEST_F(FunctionFileTest, ADamagedSharedOneIsNotTaken) {
  fs::create_directories(shared_.parent_path());
  spit(shared_, std::string(kSharedFunction, 'x'));
  const auto path = write("a", large_, sha256_);
  EXPECT_TRUE(fs::equivalent(path, shared_)) << "and makes room for the right one";
}

TEST_F(FunctionFileTest, WhatOthersCanWriteIsNotShared) {
  fs::create_directories(shared_.parent_path());
  ASSERT_EQ(::chmod(shared_.parent_path().c_str(), 0777), 0);
  EXPECT_EQ(fs::hard_link_count(write("a", large_, sha256_)), 1u);
  fs::remove_all(scratch_ / ".lockstep");
  fs::create_directory(scratch_ / "trap");
  fs::create_symlink(scratch_ / "trap", scratch_ / ".lockstep");
  EXPECT_EQ(fs::hard_link_count(write("b", large_, sha256_)), 1u);
  EXPECT_TRUE(fs::is_empty(scratch_ / "trap"));
  fs::remove(scratch_ / ".lockstep");

  write("c", large_, sha256_);
  ASSERT_EQ(::chmod(shared_.c_str(), 0666), 0);
  EXPECT_EQ(fs::status(write("d", large_, sha256_)).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace
}  // namespace lockstep::store
