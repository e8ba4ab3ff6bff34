#include "store/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.h"
#include "store/hash.h"
#include "store/manifest.h"
#include "sys/faulty_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class VerifyTest : public testing::Test {
 protected:
  Scratch scratch_;
  const fs::path path_ = scratch_ / "checkpoint_000000";

  void SetUp() override {
    Manifest manifest;
    for (const auto& [name, text] : {std::pair{"a", "hello"}, {"sub/b", "world!"}, {"empty", ""}}) {
      spit(path_ / name, text);
      manifest.files.push_back(
          {name, static_cast<std::int64_t>(std::string_view(text).size()), hash_of(bytes_of(text))});
    }
    spit(path_ / "manifest.json", to_text(manifest));
    ASSERT_EQ(problems(), "");
  }

  std::string problems() { return to_text(verify_checkpoint(path_)); }
};

TEST_F(VerifyTest, Missing) {
  fs::remove(path_ / "sub/b");
  EXPECT_EQ(problems(), "sub/b is missing");
}

TEST_F(VerifyTest, Extra) {
  spit(path_ / "sub/c", "");
  EXPECT_EQ(problems(), "sub/c is not in the manifest");
}

TEST_F(VerifyTest, WrongSize) {
  spit(path_ / "a", "hello, world");
  EXPECT_EQ(problems(), "a has 12 bytes, the manifest says 5");
}

TEST_F(VerifyTest, OneChangedByte) {
  spit(path_ / "sub/b", "worlds");
  EXPECT_THAT(problems(), HasSubstr("sub/b has the hash "));
}

TEST_F(VerifyTest, ALinkInPlaceOfAFile) {
  fs::rename(path_ / "a", scratch_ / "a");
  fs::create_symlink(scratch_ / "a", path_ / "a");
  EXPECT_EQ(problems(), "a is not a regular file");
}

TEST_F(VerifyTest, SeveralProblemsAreAllNamed) {
  fs::remove(path_ / "a");
  spit(path_ / "sub/b", "worlds");
  spit(path_ / "x", "");
  const auto found = verify_checkpoint(path_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].file, "a");
  EXPECT_EQ(found[1].file, "x");
  EXPECT_EQ(found[2].file, "sub/b");
}

TEST_F(VerifyTest, BrokenOrMissingManifest) {
  const std::string text = slurp(path_ / "manifest.json");
  for (std::size_t cut = 0; cut + 2 < text.size(); cut += 7) {
    spit(path_ / "manifest.json", text.substr(0, cut));
    EXPECT_THAT(problems(), HasSubstr("manifest.json cannot be used")) << cut;
  }
  fs::remove(path_ / "manifest.json");
  EXPECT_THAT(problems(), HasSubstr("manifest.json is missing: the checkpoint was never committed"));
  EXPECT_THAT(to_text(verify_checkpoint(scratch_ / "nowhere")), HasSubstr("no directory"));
}

TEST_F(VerifyTest, ADiskErrorIsAProblemNotAnException) {
  sys::FaultyFiles count(sys::files());
  ASSERT_TRUE(verify_checkpoint(path_, count).empty());
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, EIO});
    EXPECT_THAT(to_text(verify_checkpoint(path_, faulty)), HasSubstr("Input/output error (EIO)")) << k;
  }
}

TEST_F(VerifyTest, WhatCannotBeReadMayBeWhole) {
  sys::FaultyFiles count(sys::files());
  ASSERT_TRUE(verify_checkpoint(path_, count).empty());
  for (const int error : {EACCES, EIO, EMFILE, ENFILE, ESTALE, ENOMEM, ENOENT})
    for (std::uint64_t k = 1; k <= count.operations(); ++k) {
      sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, error});
      const auto found = verify_checkpoint(path_, faulty);
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found[0].unreadable, error != ENOENT) << error << " at " << k;
    }
}

}  // namespace
}  // namespace lockstep::store
