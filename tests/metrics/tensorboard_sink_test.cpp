#include "metrics/tensorboard_sink.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "base/clock.h"
#include "metrics/crc32c.h"
#include "scratch_directory.h"

namespace lockstep::metrics {
namespace {

/// Reads protobuf fields and fixed numbers, enough for events; every malformation is a test failure by exception.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("the data ends early");
    const auto taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  template <class Number>
  Number fixed() {
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::uint64_t varint() {
    std::uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      number |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return number;
    }
  }
  std::string_view bytes() { return take(varint()); }

 private:
  std::string_view bytes_;
};

struct Event {
  double wall_time = 0;
  std::optional<std::int64_t> step;
  std::string file_version;
  std::vector<std::pair<std::string, float>> scalars;
  std::map<std::string, float> by_tag() const { return {scalars.begin(), scalars.end()}; }
};

std::pair<std::string, float> read_scalar(std::string_view bytes) {
  Reader reader(bytes);
  std::pair<std::string, float> scalar;
  while (!reader.at_end()) {
    const auto field = reader.varint();
    if (field == 0x0A)
      scalar.first = reader.bytes();
    else if (field == 0x15)
      scalar.second = reader.fixed<float>();
    else if (scalar.first.starts_with("_hparams_/"))
      reader.bytes();  // python/tests/test_hparams.py reads them with TensorBoard's own code
    else
      throw std::runtime_error("unexpected field in a summary value");
  }
  return scalar;
}

Event read_event(std::string_view bytes) {
  Reader reader(bytes);
  Event event;
  while (!reader.at_end()) {
    const auto field = reader.varint();
    if (field == 0x09)
      event.wall_time = reader.fixed<double>();
    else if (field == 0x10)
      event.step = static_cast<std::int64_t>(reader.varint());
    else if (field == 0x1A)
      event.file_version = reader.bytes();
    else if (field == 0x2A) {
      Reader summary(reader.bytes());
      while (!summary.at_end()) {
        if (summary.varint() != 0x0A) throw std::runtime_error("unexpected field in a summary");
        event.scalars.push_back(read_scalar(summary.bytes()));
      }
    } else
      throw std::runtime_error("unexpected field in an event");
  }
  return event;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c_portable(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::vector<Event> read_events(const std::filesystem::path& path) {
  const std::string contents = read_file(path);
  Reader reader(contents);
  std::vector<Event> events;
  while (!reader.at_end()) {
    const auto length = reader.take(8);
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(length));
    const auto data = reader.take(Reader(length).fixed<std::uint64_t>());
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(data));
    events.push_back(read_event(data));
  }
  return events;
}

std::vector<std::filesystem::path> event_files(const ScratchDirectory& scratch) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The events after the first, which is the version.
std::vector<Event> events_of(const std::vector<Value>& results, const Value& config = Value::object()) {
  const ScratchDirectory scratch;
  TensorBoardSink sink(scratch.path());
  sink.start(config);
  long step = 0;
  for (const Value& result : results) sink.write(result, ++step);
  sink.close();
  auto events = read_events(event_files(scratch).at(0));
  events.erase(events.begin());
  return events;
}

TEST(TensorBoardSink, BeginsWithTheVersion) {
  const ScratchDirectory scratch;
  TensorBoardSink sink(scratch.path());
  sink.start(Value::object());
  sink.flush();
  const auto events = read_events(event_files(scratch).at(0));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_NEAR(events[0].wall_time, unix_seconds(wall_now()), 60);
}

TEST(TensorBoardSink, NumbersAndBoolsAreScalars) {
  const auto events = events_of({{{"loss", 0.5},
                                  {"epoch", 3},
                                  {"big", std::uint64_t{1} << 63},
                                  {"negative", -2},
                                  {"on", true},
                                  {"off", false},
                                  {"text", "1"},
                                  {"none", nullptr},
                                  {"list", {1, 2}}}});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(
      events[0].by_tag(),
      (std::map<std::string, float>{
          {"loss", 0.5F}, {"epoch", 3}, {"big", 9223372036854775808.0F}, {"negative", -2}, {"on", 1}, {"off", 0}}));
  EXPECT_NEAR(events[0].wall_time, unix_seconds(wall_now()), 60);
}

TEST(TensorBoardSink, NestedKeysAreJoined) {
  const auto events = events_of({{{"train", {{"loss", 1}, {"by_class", {{"cat", 2}}}}}, {"x", 3}}});
  EXPECT_EQ(events.at(0).by_tag(),
            (std::map<std::string, float>{{"train/loss", 1}, {"train/by_class/cat", 2}, {"x", 3}}));
}

TEST(TensorBoardSink, TheRunsConfigurationHasNoCurve) {
  const Value config{{"lr", 0.1}};
  const auto events = events_of({{{"config", config}, {"x", 1}}, {{"config", {{"lr", 0.2}}}}}, config);
  EXPECT_EQ(events.at(0).by_tag(), (std::map<std::string, float>{{"_hparams_/session_start_info", 0}}));
  EXPECT_EQ(events.at(1).by_tag(), (std::map<std::string, float>{{"x", 1}}));
  EXPECT_EQ(events.at(2).by_tag(), (std::map<std::string, float>{{"config/lr", 0.2F}}))
      << "the user's own metric of that name";
}

TEST(TensorBoardSink, KeysMayMove) {
  const auto events = events_of({{{"a", 1}, {"b", 2}}, {{"b", 3}}, {{"b", 4}, {"c", 5}, {"a", 6}}});
  EXPECT_EQ(events.at(1).by_tag(), (std::map<std::string, float>{{"b", 3}}));
  EXPECT_EQ(events.at(2).by_tag(), (std::map<std::string, float>{{"a", 6}, {"b", 4}, {"c", 5}}));
  EXPECT_EQ(events.at(2).step, 3);
}

TEST(TensorBoardSink, LongTagsAndLargeSteps) {
  const ScratchDirectory scratch;
  TensorBoardSink sink(scratch.path());
  sink.start(Value::object());
  const std::string tag(100'000, 't');
  sink.write({{tag, 1}}, 5'000'000'000);
  sink.close();
  const auto events = read_events(event_files(scratch).at(0));
  EXPECT_EQ(events.at(1).step, 5'000'000'000);
  EXPECT_EQ(events.at(1).by_tag(), (std::map<std::string, float>{{tag, 1}}));
}

TEST(TensorBoardSink, TagsAreValidUtf8) {
  EXPECT_EQ(events_of({{{"größe", 1}, {"a\xFFz", 2}}}).at(0).by_tag(),
            (std::map<std::string, float>{{"größe", 1}, {"a\xEF\xBF\xBDz", 2}}));
}

TEST(TensorBoardSink, NumbersThatAreNone) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto scalars = events_of({{{"nan", std::nan("")}, {"inf", infinity}, {"huge", 1e300}}}).at(0).by_tag();
  EXPECT_TRUE(std::isnan(scalars.at("nan")));
  EXPECT_TRUE(std::isinf(scalars.at("inf")));
  EXPECT_TRUE(std::isinf(scalars.at("huge")));
}

TEST(TensorBoardSink, ARestoredRunGetsAFileThatSortsLater) {
  const ScratchDirectory scratch;
  std::vector<std::filesystem::path> seen;
  for (int i = 0; i < 3; ++i) {
    TensorBoardSink sink(scratch.path());
    sink.start(Value::object());
    sink.write({{"i", i}}, i);
    sink.close();
    const auto files = event_files(scratch);
    ASSERT_EQ(files.size(), static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(read_events(files.back()).at(1).by_tag().at("i"), static_cast<float>(i));
  }
}

}  // namespace
}  // namespace lockstep::metrics
