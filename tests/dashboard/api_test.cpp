#include "dashboard/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <optional>

#include "base/json.h"
#include "base/utf8.h"
#include "run_folder.h"

namespace lockstep::dashboard {
namespace {

namespace fs = std::filesystem;

class ApiTest : public testing::Test {
 protected:
  ApiTest() {
    folder.add_run("one");
    folder.write("one/params.json", R"({"lr": 0.1})");
    folder.write("one/result.json", "{\"loss\": 1}\n{\"loss\": 2}\n");
  }
  Value get(const std::string& what, std::multimap<std::string, std::string> query) {
    if (!api) {
      catalog.emplace(files);
      api.emplace(files, *catalog);
    }
    const Response response = api->answer({"GET", "/api/" + what, std::move(query), "", "", ""});
    EXPECT_EQ(response.status, 200);
    return parse_json(response.body, what);
  }
  Value log(std::int64_t from, std::int64_t most, const std::string& name = "rank_0.log") {
    return get("log", {{"id", "one"}, {"name", name}, {"from", std::to_string(from)}, {"most", std::to_string(most)}});
  }

  RunFolder folder;
  sys::BeneathFiles files{folder.root};
  std::optional<Catalog> catalog;
  std::optional<Api> api;
};

TEST_F(ApiTest, OneRun) {
  folder.write("one/logs/rank_0.log", "hello\n");
  const Value run = get("run", {{"id", "one"}});
  EXPECT_EQ(run["state"], "finished");
  EXPECT_EQ(run["params"], Value({{"lr", 0.1}}));
  EXPECT_EQ(run["logs"], Value::array({{{"name", "rank_0.log"}, {"size", 6}}}));
  EXPECT_EQ(run["record"]["trainer"], "TorchTrainer");
  EXPECT_TRUE(run["checkpoints"].empty());
}

TEST_F(ApiTest, AllRunsForPrometheus) {
  get("list", {});
  const Response response = api->answer({"GET", "/metrics", {}, "", "", ""});
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.type.starts_with("application/openmetrics-text"));
  EXPECT_THAT(response.body, testing::HasSubstr(R"(lockstep_run_state{run="one",lockstep_run_state="finished"} 1.0)"));
}

TEST_F(ApiTest, TheSeriesOfARun) {
  const Value series = get("series", {{"id", "one"}});
  EXPECT_EQ(series["columns"]["loss"], Value({1, 2}));
  const Value rest =
      get("series", {{"id", "one"}, {"from", "1"}, {"generation", std::to_string(series["generation"].get<int>())}});
  EXPECT_EQ(rest["columns"]["loss"], Value::array({2}));
}

TEST_F(ApiTest, TheExtremesOfARun) {
  folder.write("one/result.json", "{\"loss\": 3, \"x\": NaN}\n{\"loss\": -1}\n{\"loss\": 2}\n");
  EXPECT_EQ(get("extremes", {{"id", "one"}}), Value({{"loss", {-1, 3}}}));
}

TEST_F(ApiTest, AFinishedRunUsesNothing) {
  const Value resources = get("resources", {{"id", "one"}});
  EXPECT_TRUE(resources["workers"].empty());
  EXPECT_GE(resources["node"]["cores"], 1);
}

TEST_F(ApiTest, LogsInPiecesWithoutCuttingCharacters) {
  std::string text;
  while (text.size() < 5000) text += "aé";
  folder.write("one/logs/rank_0.log", text);
  std::string whole;
  for (std::int64_t from = 0; from < static_cast<std::int64_t>(text.size());) {
    const Value piece = log(from, 1025);
    whole += piece["text"];
    ASSERT_GT(piece["next"], from);
    from = piece["next"];
  }
  EXPECT_EQ(whole, text);
  EXPECT_EQ(log(-1, 1026)["from"], text.size() - 1026);
}

TEST_F(ApiTest, LogsOfAnyBytes) {
  using namespace std::string_literals;
  const auto odd = "\x00<script>\x1b[31m\xff\xfe\xc3"s;
  folder.write("one/logs/rank_0.log", odd);
  const Value piece = log(0, 1 << 20);
  EXPECT_EQ(piece["next"], odd.size());
  EXPECT_EQ(piece["text"], valid_utf8(odd));
}

TEST_F(ApiTest, AVeryLongLineComesInPieces) {
  folder.write("one/logs/rank_0.log", std::string(10 << 20, 'x'));
  EXPECT_EQ(log(-1, 1 << 30)["text"].get<std::string>().size(), std::size_t{1} << 20);
}

TEST_F(ApiTest, NothingOutsideOfTheLogs) {
  RunFolder outside;
  outside.write("secret", "secret");
  folder.write("one/logs/rank_0.log", "");
  fs::create_symlink(outside.root / "secret", folder.root / "one/logs/link");
  for (const char* name : {"../run.json", "..", ".", "", "/etc/passwd", "a/b", "link", "missing"})
    EXPECT_THROW(log(0, 1024, name), std::exception) << name;
}

TEST_F(ApiTest, WrongRequests) {
  get("list", {});
  EXPECT_THROW(get("run", {{"id", "two"}}), ConfigError);
  EXPECT_THROW(get("run", {}), ConfigError);
  EXPECT_THROW(get("series", {{"id", "one"}, {"from", "x"}}), ConfigError);
  EXPECT_THROW(get("experiment", {{"id", "one"}}), StorageError);
  EXPECT_THROW(get("plot", {{"id", "one"}, {"kind", "<b>"}}), ConfigError);
  EXPECT_EQ(api->answer({"GET", "/api/nothing", {}, "", "", ""}).status, 404);
  EXPECT_EQ(api->answer({"GET", "/favicon.ico", {}, "", "", ""}).status, 404);
}

TEST_F(ApiTest, ADamagedExperimentIsListedWithItsError) {
  folder.write("search/experiment.sqlite", "this is no database, however long it is");
  const Value experiments = get("list", {})["experiments"];
  ASSERT_EQ(experiments.size(), 1U);
  EXPECT_EQ(experiments[0]["id"], "search");
  EXPECT_NE(experiments[0]["error"], "");
}

}  // namespace
}  // namespace lockstep::dashboard
