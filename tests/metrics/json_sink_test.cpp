#include "metrics/json_sink.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <limits>
#include <sstream>

#include "base/json.h"
#include "scratch_directory.h"

namespace lockstep::metrics {
namespace {

std::vector<Value> lines_of(const std::filesystem::path& path) {
  std::vector<Value> values;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) values.push_back(parse_json(line, path.string()));
  return values;
}

TEST(JsonSink, OneObjectALine) {
  const ScratchDirectory scratch;
  JsonSink sink(scratch.path());
  sink.start(Value::object());
  sink.write({{"loss", 0.5}, {"name", "a \"b\"\n"}, {"none", nullptr}, {"config", Value::object()}}, 1);
  sink.write({{"loss", 1e-7}, {"list", {1, 2.0, "x"}}, {"deep", {{"ok", true}}}}, 2);
  sink.close();
  EXPECT_EQ(read_file(scratch / "result.json"),
            "{\"loss\": 0.5, \"name\": \"a \\\"b\\\"\\n\", \"none\": null, \"config\": {}}\n"
            "{\"loss\": 1e-07, \"list\": [1, 2.0, \"x\"], \"deep\": {\"ok\": true}}\n");
}

TEST(JsonSink, KeysMayMove) {
  const ScratchDirectory scratch;
  const std::vector<Value> results{{{"a", 1}, {"b", 2}}, {{"b", 3}}, {{"b", 4}, {"a", 5}, {"", 6}}, {{"", 7}},
                                   Value::object(),      {{"a", 8}}};
  JsonSink sink(scratch.path());
  sink.start(Value::object());
  for (const Value& result : results) sink.write(result, 0);
  sink.close();
  EXPECT_EQ(lines_of(scratch / "result.json"), results);
}

TEST(JsonSink, TheConfigIsWrittenAsItIs) {
  const ScratchDirectory scratch;
  const Value config{{"lr", 0.1}, {"layers", {1, 2}}};
  JsonSink sink(scratch.path());
  sink.start(config);
  sink.write({{"config", config}}, 1);
  sink.write({{"config", {{"lr", 0.2}}}}, 2);
  sink.write({{"config", 3}}, 3);
  sink.close();
  EXPECT_EQ(lines_of(scratch / "result.json"),
            (std::vector<Value>{{{"config", config}}, {{"config", {{"lr", 0.2}}}}, {{"config", 3}}}));
}

TEST(JsonSink, FlushMakesEverythingReadable) {
  const ScratchDirectory scratch;
  JsonSink sink(scratch.path());
  sink.start(Value::object());
  sink.write({{"loss", 1}}, 1);
  sink.flush();
  EXPECT_EQ(lines_of(scratch / "result.json").size(), 1U);
  sink.write({{"loss", 2}}, 2);
  sink.flush();
  EXPECT_EQ(lines_of(scratch / "result.json").size(), 2U);
}

TEST(JsonSink, TheFileOnlyEverEndsInWholeLines) {
  const ScratchDirectory scratch;
  JsonSink sink(scratch.path());
  sink.start(Value::object());
  const std::string text(1000, 'x');
  for (int i = 0; i < 1000; ++i) {
    sink.write({{"text", text}}, i);
    const std::string so_far = read_file(scratch / "result.json");
    ASSERT_TRUE(so_far.empty() || so_far.ends_with("}\n"));
  }
  EXPECT_GT(std::filesystem::file_size(scratch / "result.json"), 500'000U) << "the buffer is bounded";
}

TEST(JsonSink, GoesOnAfterWhatIsThere) {
  const ScratchDirectory scratch;
  for (int i = 0; i < 2; ++i) {
    JsonSink sink(scratch.path());
    sink.start(Value::object());
    sink.write({{"loss", i}}, i);
  }  // not closed: the destructor flushes
  EXPECT_EQ(lines_of(scratch / "result.json"), (std::vector<Value>{{{"loss", 0}}, {{"loss", 1}}}));
}

TEST(JsonSink, CutsATornLastLine) {
  for (const auto& [before, kept] :
       {std::pair<std::string, std::string>{"{\"loss\": 1}\n{\"los", "{\"loss\": 1}\n"}, {"{\"loss", ""}, {"", ""}}) {
    const ScratchDirectory scratch;
    write_file(scratch / "result.json", before);
    JsonSink sink(scratch.path());
    sink.start(Value::object());
    sink.write({{"loss", 2}}, 2);
    sink.close();
    EXPECT_EQ(read_file(scratch / "result.json"), kept + "{\"loss\": 2}\n");
  }
}

TEST(JsonSink, NumbersThatJsonLacks) {
  const ScratchDirectory scratch;
  JsonSink sink(scratch.path());
  sink.start(Value::object());
  const double infinity = std::numeric_limits<double>::infinity();
  sink.write({{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", infinity}, {"c", -infinity}}, 1);
  sink.close();
  EXPECT_EQ(read_file(scratch / "result.json"), "{\"a\": NaN, \"b\": Infinity, \"c\": -Infinity}\n");
}

}  // namespace
}  // namespace lockstep::metrics
