#include "dashboard/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <poll.h>

#include <algorithm>

#include "base/json.h"
#include "run_folder.h"

namespace lockstep::dashboard {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class CatalogTest : public testing::Test {
 protected:
  std::vector<std::string> listed(Catalog& catalog) {
    std::vector<std::string> ids;
    const Value list = parse_json(catalog.list_json({}), "");
    for (const Value& run : list["runs"]) ids.push_back(run["id"]);
    return ids;
  }
  /// Waits for a change of this place and file.
  bool sees(Catalog& catalog, const std::string& place, const std::string& file) {
    pollfd waiting{catalog.descriptor(), POLLIN, 0};
    for (int i = 0; i < 100 && ::poll(&waiting, 1, 10'000) > 0; ++i)
      for (const Change& change : catalog.take())
        if (change.place == place && change.file == file) return true;
    return false;
  }

  RunFolder folder;
  sys::BeneathFiles files{folder.root};
};

TEST_F(CatalogTest, FindsRunsAtEveryDepthButNotInsideOfRuns) {
  folder.add_run("one");
  folder.add_run("group/two");
  folder.add_run("one/checkpoint_000000/inner");
  folder.add_run("one/nested");
  folder.add_run(".hidden/three");
  folder.write("empty/file", "");
  Catalog catalog(files);
  EXPECT_THAT(listed(catalog), ElementsAre("group/two", "one"));
  EXPECT_EQ(catalog.path_of("group/two"), folder.root / "group/two");
}

TEST_F(CatalogTest, TheRootMayBeARun) {
  folder.add_run(".");
  Catalog catalog(files);
  EXPECT_THAT(listed(catalog), ElementsAre("."));
  EXPECT_EQ(catalog.path_of("."), folder.root);
}

TEST_F(CatalogTest, IdsAreNotPaths) {
  folder.add_run("one");
  Catalog catalog(files);
  for (const char* id : {"", "..", "../one", "one/..", "/etc", "one/", "./one", "one/logs", "group"})
    EXPECT_THROW(catalog.path_of(id), ConfigError) << id;
}

TEST_F(CatalogTest, LinksAreNotFollowed) {
  RunFolder outside;
  outside.add_run("secret");
  fs::create_directory_symlink(outside.root, folder.root / "link");
  folder.add_run("one");
  fs::create_directory(folder.root / "two");
  fs::create_symlink(outside.root / "secret/run.json", folder.root / "two/run.json");
  Catalog catalog(files);
  EXPECT_THAT(listed(catalog), ElementsAre("one"));
}

TEST_F(CatalogTest, OddRecordsAreShownAsUnreadable) {
  folder.write("broken/run.json", "{\"name\": ");
  folder.write("list/run.json", "[]");
  folder.add_run("good");
  Catalog catalog(files);
  const Value runs = parse_json(catalog.list_json({}), "")["runs"];
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0]["state"], "unreadable");
  EXPECT_EQ(runs[1]["state"], "finished");
  EXPECT_EQ(runs[2]["state"], "unreadable");
}

TEST_F(CatalogTest, HostileNamesAreText) {
  const std::string name = "<img src=x onerror=alert(1)>\n\x1b[31m";
  folder.write_record(name, R"("state": "<b>", "error": "\u0000<script>", "metrics": {"<i>": 1, "n": NaN})");
  Catalog catalog(files);
  const Value run = parse_json(catalog.list_json({name}), "")["runs"][0];
  EXPECT_EQ(run["name"], name);
  EXPECT_EQ(run["metrics"], Value({{"<i>", 1.0}, {"n", "NaN"}}));
}

TEST_F(CatalogTest, TellsOfNewRunsChangesAndLogs) {
  folder.add_run("one", "finished");
  Catalog catalog(files);
  folder.add_run("late", "finished");
  EXPECT_TRUE(sees(catalog, "late", "run.json"));
  EXPECT_THAT(listed(catalog), ElementsAre("late", "one"));
  folder.write_record("one", R"("state": "failed", "error": "why")");
  EXPECT_TRUE(sees(catalog, "one", "run.json"));
  EXPECT_EQ(parse_json(catalog.list_json({"one"}), "")["runs"][0]["state"], "failed");
  folder.write("one/result.json", "{}\n");
  EXPECT_TRUE(sees(catalog, "one", "result.json"));
  fs::create_directory(folder.root / "one/logs");
  catalog.follow({"one"});
  folder.write("one/logs/rank_0.log", "hello\n");
  EXPECT_TRUE(sees(catalog, "one", "logs/rank_0.log"));
  fs::remove_all(folder.root / "late");
  EXPECT_TRUE(sees(catalog, "late", "run.json"));
  EXPECT_THAT(listed(catalog), ElementsAre("one"));
}

TEST_F(CatalogTest, ARunningRunWithoutItsDriverHasDied) {
  folder.write_record("one", R"("state": "running", "driver": {"pid": 4194304, "start_ticks": 5, "hostname": ""})");
  Catalog catalog(files);
  EXPECT_EQ(parse_json(catalog.list_json({}), "")["runs"][0]["state"], "died");
  EXPECT_TRUE(catalog.look().empty());
}

TEST_F(CatalogTest, TheBestScoreIsThatOfTheCheckpoints) {
  folder.write_record("one", R"("state": "finished", "config_run": {"checkpoint_score_attribute": "acc", )"
                             R"("checkpoint_score_order": "max"})");
  const auto manifest = [](int seq, const std::string& metrics) {
    return R"({"version": 1, "seq": )" + std::to_string(seq) + R"(, "attempt": 0, "world_size": 1, "ranks": [0], )" +
           R"("created": 5, "metrics": {)" + metrics + R"(}, "files": []})";
  };
  folder.write("one/checkpoint_000000/manifest.json", manifest(0, R"("acc": 0.5)"));
  folder.write("one/checkpoint_000001/manifest.json", manifest(1, R"("acc": 0.75)"));
  folder.write("one/checkpoint_000002/manifest.json", manifest(2, R"("other": 9)"));
  Catalog catalog(files);
  const Value best = parse_json(catalog.list_json({}), "")["runs"][0]["best"];
  EXPECT_EQ(best, Value({{"metric", "acc"}, {"value", 0.75}, {"order", "max"}, {"seq", 1}}));
}

}  // namespace
}  // namespace lockstep::dashboard
