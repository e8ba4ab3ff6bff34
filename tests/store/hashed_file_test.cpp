#include "store/hashed_file.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <algorithm>

#include "scratch.h"
#include "sys/faulty_files.h"

namespace lockstep::store {
namespace {

using Fault = sys::FaultyFiles::Fault;

std::string noise(std::size_t size) {
  std::string text(size, '\0');
  std::uint64_t state = size;
  for (char& c : text) c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return text;
}

TEST(Hash, IsXxh3OfWhatXxhsumPrints) {
  EXPECT_EQ(hash_of({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hasher().digest(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, PiecesGiveTheSameAsTheWhole) {
  const std::string text = noise(10'000);
  for (const std::size_t piece : {1u, 7u, 256u, 4096u}) {
    Hasher hasher;
    for (std::size_t i = 0; i < text.size(); i += piece)
      hasher.update(bytes_of(std::string_view(text).substr(i, piece)));
    EXPECT_EQ(hasher.digest(), hash_of(bytes_of(text))) << piece;
  }
  EXPECT_NE(hash_of(bytes_of(text)), hash_of(bytes_of(noise(10'001))));
}

/// Small pieces are gathered, large ones are not; either way, and in any order, the file is what was given.
TEST(HashedFile, WritesPiecesOfAnySizeInOrder) {
  Scratch scratch;
  sys::FaultyFiles short_writes(sys::files(), {1, Fault::short_write, 0, true});
  int number = 0;
  for (sys::Files* files : {&sys::files(), static_cast<sys::Files*>(&short_writes)}) {
    const auto path = scratch / std::to_string(number++);
    std::string expected;
    HashedFile file(*files, files->open(path, sys::OpenMode::create), 0);
    for (const std::size_t size : {0u, 1u, 65'535u, 65'536u, 3u, 20'000'000u, 100u, 262'144u, 262'145u, 5u}) {
      const std::string piece = noise(size);
      file.write(bytes_of(piece));
      expected += piece;
    }
    const FileEntry entry = file.finish("n");
    EXPECT_TRUE(slurp(path) == expected);
    EXPECT_EQ(entry, (FileEntry{"n", static_cast<std::int64_t>(expected.size()), hash_of(bytes_of(expected))}));
    EXPECT_EQ(hash_file(*files, path, "n"), entry);
  }
}

TEST(HashedFile, LargePiecesTakeFewSystemCalls) {
  Scratch scratch;
  sys::FaultyFiles files(sys::files());
  HashedFile file(files, files.open(scratch / "f", sys::OpenMode::create), 1 << 20);
  const std::string piece = noise(100);
  for (int i = 0; i < 10'000; ++i) file.write(bytes_of(piece));
  file.finish("f");
  const auto log = files.log();
  EXPECT_LE(std::count_if(log.begin(), log.end(), [](const auto& o) { return o.name == "write"; }), 4);
}

TEST(HashedFile, SyncsBeforeItCloses) {
  Scratch scratch;
  sys::FaultyFiles files(sys::files());
  HashedFile file(files, files.open(scratch / "f", sys::OpenMode::create), 1);
  file.write(bytes_of("x"));
  file.finish("f");
  std::string order;
  for (const auto& operation : files.log()) order += operation.name + " ";
  EXPECT_EQ(order, "open write sync close ");
}

}  // namespace
}  // namespace lockstep::store
