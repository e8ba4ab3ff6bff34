#include "metrics/sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include <functional>
#include <map>

#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/tensorboard_sink.h"
#include "scratch_directory.h"
#include "sys/faulty_files.h"

namespace lockstep::metrics {
namespace {

using Make = std::function<std::unique_ptr<ReportSink>(const std::filesystem::path&, sys::Files&)>;

template <class Sink>
std::unique_ptr<ReportSink> make(const std::filesystem::path& directory, sys::Files& files) {
  return std::make_unique<Sink>(directory, files);
}

/// What holds for every sink.
class EverySink : public testing::TestWithParam<Make> {
 protected:
  std::unique_ptr<ReportSink> started(sys::Files& files = sys::files()) {
    auto sink = GetParam()(scratch_.path(), files);
    sink->start({{"lr", 0.1}});
    return sink;
  }
  /// The contents of the one file that is there.
  std::string contents() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) paths.push_back(entry.path());
    EXPECT_EQ(paths.size(), 1U);
    return paths.empty() ? "" : read_file(paths[0]);
  }
  ScratchDirectory scratch_;
};

TEST_P(EverySink, OnlyTheOwnerReadsItsFile) {
  const auto sink = started();
  sink->write({{"loss", 1}}, 1);
  sink->close();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_P(EverySink, BuffersUntilFlushed) {
  const auto sink = started();
  sink->flush();
  const auto before = contents();
  sink->write({{"loss", 1}}, 1);
  EXPECT_EQ(contents(), before);
  sink->flush();
  EXPECT_GT(contents().size(), before.size());
}

TEST_P(EverySink, CloseTwiceAndFlushWithNothingToDo) {
  const auto sink = started();
  sink->write({{"loss", 1}}, 1);
  sink->flush();
  const auto flushed = contents();
  sink->flush();
  sink->close();
  sink->close();
  EXPECT_EQ(contents(), flushed);
}

TEST_P(EverySink, ADirectoryThatIsNotThereIsAnError) {
  const auto missing = scratch_ / "missing";
  const auto sink = GetParam()(missing, sys::files());
  try {
    sink->start(Value::object());
    FAIL() << "started in a directory that does not exist";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(missing.string()));
  }
}

/// A disk that is full for a while: the error names the file, and when there is space again nothing was lost or
/// doubled.
TEST_P(EverySink, AFullDiskThatGetsSpaceAgain) {
  std::string expected;
  for (std::uint64_t k = 0; k < 40; ++k) {
    const ScratchDirectory scratch;
    sys::FaultyFiles files(
        sys::files(),
        {.at = k, .fault = k == 0 ? sys::FaultyFiles::Fault::none : sys::FaultyFiles::Fault::fail, .error = ENOSPC});
    const auto sink = GetParam()(scratch.path(), files);
    try {
      sink->start(Value::object());
    } catch (const StorageError&) {
      continue;
    }
    for (long step = 1; step <= 3; ++step) {
      sink->write({{"loss", step}}, step);
      try {
        sink->flush();
      } catch (const StorageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(scratch.path().string()));
        EXPECT_THAT(error.what(), testing::HasSubstr("No space left"));
        sink->flush();
      }
    }
    std::string size;
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
      size += std::to_string(entry.file_size());
    if (k == 0) expected = size;
    EXPECT_EQ(size, expected) << k;
  }
}

TEST_P(EverySink, AWriteThatTakesOnlyAPartGoesOn) {
  sys::FaultyFiles files(sys::files(), {.at = 1, .fault = sys::FaultyFiles::Fault::short_write, .lasting = true});
  const auto sink = started(files);
  sink->write({{"loss", 1}}, 1);
  sink->flush();
  const auto size = contents().size();
  const ScratchDirectory other;
  const auto whole = GetParam()(other.path(), sys::files());
  whole->start({{"lr", 0.1}});
  whole->write({{"loss", 1}}, 1);
  whole->close();
  EXPECT_EQ(size, std::filesystem::file_size(std::filesystem::directory_iterator(other.path())->path()));
}

std::string sink_name(const testing::TestParamInfo<Make>& info) {
  return info.index == 0 ? "Json" : info.index == 1 ? "Csv" : "TensorBoard";
}

INSTANTIATE_TEST_SUITE_P(Sinks, EverySink,
                         testing::Values(Make(make<JsonSink>), Make(make<CsvSink>), Make(make<TensorBoardSink>)),
                         sink_name);

TEST(DefaultSinks, AreTheThreeFilesOfARunDirectory) {
  const ScratchDirectory scratch;
  for (const auto& sink : default_sinks(scratch.path())) {
    sink->start(Value::object());
    sink->write({{"loss", 1}}, 1);
    sink->close();
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("result.json", "progress.csv",
                                                   testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\.0")));
}

}  // namespace
}  // namespace lockstep::metrics
