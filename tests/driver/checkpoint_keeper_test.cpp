#include "driver/checkpoint_keeper.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <fstream>

#include "../store/scratch.h"
#include "store/hash.h"

namespace lockstep::driver {
namespace {

namespace fs = std::filesystem;

class CheckpointKeeperTest : public ::testing::Test {
 protected:
  /// What a worker says when it has written `text` to `directory`/x below the run directory.
  Commit written(const std::string& directory, const std::string& text = "hello") {
    fs::create_directories(run_.path() / directory);
    std::ofstream(run_.path() / directory / "x") << text;
    Part part;
    part.written.partial = directory;
    part.written.files.push_back(
        {"x", static_cast<std::int64_t>(text.size()), store::hash_of(std::as_bytes(std::span(text)))});
    return {.report = 0, .parts = {part}};
  }

  Scratch scratch_;
  store::RunDirectory run_{scratch_ / "run"};
  CheckpointKeeper keeper_{run_, CheckpointConfig{}, [](const std::string&) {}};
};

TEST_F(CheckpointKeeperTest, TakesTheNameThatWorkersGave) {
  for (const char* name : {"checkpoint_000000.partial", "checkpoint_000000_report_000007.partial"}) {
    const auto committed = keeper_.commit(written(name), 0, 1, Value::object());
    EXPECT_NO_THROW(committed.verify());
    EXPECT_FALSE(fs::exists(run_.path() / name));
  }
  EXPECT_EQ(run_.checkpoints(), (std::vector{0, 1}));
}

TEST_F(CheckpointKeeperTest, RefusesNamesOutsideTheRun) {
  for (const char* name : {"../outside.partial", "logs/x.partial", "checkpoint_000005.partial", "logs", ""}) {
    EXPECT_THROW(keeper_.commit(written(name), 0, 1, Value::object()), StorageError) << name;
    EXPECT_TRUE(fs::exists(run_.path() / name / "x")) << name;
  }
  EXPECT_TRUE(run_.checkpoints().empty());
  EXPECT_EQ(keeper_.next_seq(), 0);
}

}  // namespace
}  // namespace lockstep::driver
