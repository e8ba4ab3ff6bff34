#include "store/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>

#include "scratch.h"
#include "store/part_writer.h"
#include "store/verify.h"
#include "sys/faulty_files.h"

namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RunDirectoryTest : public testing::Test {
 protected:
  Scratch scratch_;
  RunDirectory run_{scratch_ / "results/run"};

  void SetUp() override {
    run_.create();
    run_.write_run_json({{"state", "running"}});
  }

  Manifest write_partial(int seq, const std::string& text) {
    const std::vector<MemoryFile> files = {{"data.json", bytes_of(text)}, {"sub/x", bytes_of("x")}};
    Manifest manifest;
    manifest.seq = seq;
    manifest.ranks = {0};
    manifest.metrics = {{"loss", seq}};
    manifest.files = PartWriter(sys::files(), run_.path() / RunDirectory::partial_name(seq)).write_files(files);
    return manifest;
  }

  fs::path commit(int seq, const std::string& text = "{}") {
    return run_.commit(RunDirectory::partial_name(seq), write_partial(seq, text));
  }
};

TEST_F(RunDirectoryTest, CreateMakesAPrivateDirectoryWithLogs) {
  EXPECT_EQ(fs::status(run_.path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(run_.logs()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(run_.path() / "run.json").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(RunDirectoryTest, MetricsThatAreAddedReplaceTheManifestAtOnce) {
  commit(0);
  sys::FaultyFiles count(sys::files());
  RunDirectory(run_.path(), count).add_metrics(0, {{"accuracy", 0.5}});
  EXPECT_EQ(run_.checkpoint(0).manifest.metrics, (Value{{"loss", 0}, {"accuracy", 0.5}}));
  EXPECT_TRUE(run_.checkpoint(0).manifest.validated);
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, EIO});
    try {
      RunDirectory(run_.path(), faulty).add_metrics(0, {{"k", k}});
    } catch (const StorageError&) {
    }
    EXPECT_EQ(run_.checkpoint(0).manifest.files.size(), 2u) << k;
    EXPECT_NO_THROW(Checkpoint::from_directory(run_.checkpoint_path(0)).verify()) << k;
  }
}

TEST_F(RunDirectoryTest, CreateRefusesWhatIsThere) {
  EXPECT_TRUE(run_.exists());
  EXPECT_THAT(message_of<ConfigError>([&] { RunDirectory(run_.path()).create(); }),
              AllOf(HasSubstr("already"), HasSubstr("restore"), HasSubstr(run_.path().string())));
  spit(scratch_ / "mine/thesis.tex", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { RunDirectory(scratch_ / "mine").create(); }), HasSubstr("another name"));
  spit(scratch_ / "file", "x");
  EXPECT_THROW(RunDirectory(scratch_ / "file").create(), ConfigError);
  fs::create_directory(scratch_ / "empty");
  RunDirectory(scratch_ / "empty").create();
  // What a driver leaves that was killed before its run.json.
  for (const char* name : {"params.json", "function.pkl", "run.json.partial"}) spit(scratch_ / "empty" / name, "x");
  RunDirectory(scratch_ / "empty").create();
}

TEST_F(RunDirectoryTest, CreateRefusesADirectoryThatOthersCouldHavePrepared) {
  const auto refusal = [&](const char* name) {
    return message_of<StorageError>([&] { RunDirectory(scratch_ / name).create(); });
  };
  fs::create_directory(scratch_ / "open");
  fs::permissions(scratch_ / "open", fs::perms::all);
  EXPECT_THAT(refusal("open"), AllOf(HasSubstr("mode 0777"), HasSubstr((scratch_ / "open").string())));
  fs::create_directory(scratch_ / "empty");
  fs::create_directory_symlink(scratch_ / "empty", scratch_ / "link");
  EXPECT_THAT(refusal("link"), HasSubstr("is a link"));
  for (const char* name : {"params.json.partial", "function.pkl.partial", "run.json.partial", "logs", "params.json"}) {
    fs::create_directory(scratch_ / "trap");
    spit(scratch_ / "victim", "precious");
    fs::create_symlink(scratch_ / "victim", scratch_ / "trap" / name);
    EXPECT_THAT(refusal("trap"), AllOf(HasSubstr(name), HasSubstr("is a link")));
    EXPECT_EQ(slurp(scratch_ / "victim"), "precious");
    fs::remove_all(scratch_ / "trap");
  }
}

TEST_F(RunDirectoryTest, OpenRefusesFilesOfARunThatAreNotOursAlone) {
  commit(0);
  spit(run_.path() / "notes.txt", "a person's own");
  fs::permissions(run_.path() / "notes.txt", fs::perms::all);
  fs::create_symlink("notes.txt", run_.path() / "latest");
  spit(run_.logs() / "rank_0.log", "x");
  RunDirectory(run_.path()).open();
  for (const char* name : {"run.json", "logs/rank_0.log", "checkpoint_000000", "checkpoint_000000/sub/x"}) {
    const auto path = run_.path() / name;
    fs::permissions(path, fs::perms::group_write, fs::perm_options::add);
    EXPECT_THAT(message_of<StorageError>([&] { RunDirectory(run_.path()).open(); }), HasSubstr(path.string()));
    fs::permissions(path, fs::perms::group_write, fs::perm_options::remove);
  }
  fs::rename(run_.path() / "run.json", scratch_ / "other");
  fs::create_symlink(scratch_ / "other", run_.path() / "run.json");
  EXPECT_THAT(message_of<StorageError>([&] { RunDirectory(run_.path()).open(); }), HasSubstr("is a link"));
}

TEST_F(RunDirectoryTest, OpenNeedsARun) {
  RunDirectory(run_.path()).open();
  EXPECT_THAT(message_of<ConfigError>([&] { RunDirectory(scratch_ / "none").open(); }), HasSubstr("no run"));
  fs::create_directory(scratch_ / "empty");
  EXPECT_THROW(RunDirectory(scratch_ / "empty").open(), ConfigError);
}

TEST_F(RunDirectoryTest, RunJsonAndOtherFilesRoundTrip) {
  const Value run = {{"state", "finished"}, {"failures", Value::array()}};
  run_.write_run_json(run);
  EXPECT_EQ(run_.read_run_json(), run);
  run_.write_file("params.json", "{}");
  run_.write_file("function.pkl", Bytes{1, 0, 2});
  EXPECT_EQ(run_.read_file("function.pkl"), (Bytes{1, 0, 2}));
  EXPECT_TRUE(run_.has_file("params.json"));
  EXPECT_FALSE(run_.has_file("other"));
  EXPECT_EQ(fs::status(run_.path() / "function.pkl").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_THROW(run_.write_file("../x", ""), InternalError);
  EXPECT_THROW(run_.write_file("logs/x", ""), InternalError);
}

TEST_F(RunDirectoryTest, ABrokenRunJsonIsAnError) {
  spit(run_.path() / "run.json", "{\"state\": ");
  EXPECT_THAT(message_of<StorageError>([&] { run_.read_run_json(); }), HasSubstr("run.json"));
  spit(run_.path() / "run.json", std::string(100'000, '[') + "NaN");
  EXPECT_THROW(run_.read_run_json(), StorageError);
}

TEST_F(RunDirectoryTest, Names) {
  EXPECT_EQ(RunDirectory::checkpoint_name(0), "checkpoint_000000");
  EXPECT_EQ(RunDirectory::checkpoint_name(123), "checkpoint_000123");
  EXPECT_EQ(RunDirectory::checkpoint_name(1'234'567), "checkpoint_1234567");
  EXPECT_EQ(RunDirectory::partial_name(7), "checkpoint_000007.partial");
  EXPECT_THROW(RunDirectory::checkpoint_name(-1), InternalError);
}

TEST_F(RunDirectoryTest, CommitMakesAValidCheckpoint) {
  const fs::path path = commit(0, "{\"epoch\": 1}");
  EXPECT_EQ(path, run_.path() / "checkpoint_000000");
  EXPECT_THAT(verify_checkpoint(path), IsEmpty());
  EXPECT_FALSE(fs::exists(run_.path() / "checkpoint_000000.partial"));
  EXPECT_EQ(slurp(path / "data.json"), "{\"epoch\": 1}");
  EXPECT_EQ(run_.checkpoint(0).manifest.metrics, (Value{{"loss", 0}}));
  EXPECT_THAT(run_.checkpoints(), ElementsAre(0));
}

TEST_F(RunDirectoryTest, CommitRefusesWhatTheManifestDoesNotSay) {
  const Manifest good = write_partial(3, "{}");
  const fs::path partial = run_.path() / "checkpoint_000003.partial";
  const auto refused = [&](const Manifest& manifest) {
    return message_of<StorageError>([&] { run_.commit("checkpoint_000003.partial", manifest); });
  };
  Manifest manifest = good;
  manifest.files.push_back({"ghost", 1, std::string(32, 'a')});
  EXPECT_THAT(refused(manifest), HasSubstr("ghost is missing"));
  manifest = good;
  manifest.files.pop_back();
  EXPECT_THAT(refused(manifest), HasSubstr("sub/x is not in the manifest"));
  manifest = good;
  manifest.files[0].size = 1;
  EXPECT_THAT(refused(manifest), HasSubstr("data.json has 2 bytes"));
  manifest = good;
  manifest.files[0].xxh3_128 = "";
  EXPECT_THAT(refused(manifest), HasSubstr("hexadecimal"));
  manifest = good;
  manifest.seq = 4;
  EXPECT_THAT(refused(manifest), HasSubstr("checkpoint 4"));
  EXPECT_THAT(run_.checkpoints(), IsEmpty());
  EXPECT_FALSE(fs::exists(partial / "manifest.json"));
  run_.commit("checkpoint_000003.partial", good);
}

/// The name comes from a worker's message.
TEST_F(RunDirectoryTest, CommitRefusesNamesThatAreNoPartialOfThisRun) {
  const Manifest manifest = write_partial(0, "{}");
  fs::create_directories(run_.path() / "x");
  for (const char* name : {"checkpoint_000000", "checkpoint_000001.partial", "../run/checkpoint_000000.partial", "",
                           "logs", "x/../checkpoint_000000.partial", ".partial", "/tmp/x.partial"})
    EXPECT_THAT(message_of<StorageError>([&] { run_.commit(name, manifest); }), HasSubstr("not a directory from which"))
        << name;
  EXPECT_THROW(run_.commit("other.partial", manifest), StorageError) << "there is none";
  fs::rename(run_.path() / "checkpoint_000000.partial", run_.path() / "attempt_1_report_5.partial");
  run_.commit("attempt_1_report_5.partial", manifest);
  EXPECT_THAT(run_.checkpoints(), ElementsAre(0));
  EXPECT_THAT(verify_checkpoint(run_.checkpoint_path(0)), IsEmpty());
}

TEST_F(RunDirectoryTest, CommitNeverReplacesACheckpoint) {
  commit(0, "first");
  const Manifest manifest = write_partial(0, "second");
  EXPECT_THAT(message_of<StorageError>([&] { run_.commit("checkpoint_000000.partial", manifest); }),
              HasSubstr("exists already"));
  EXPECT_EQ(slurp(run_.checkpoint_path(0) / "data.json"), "first");
}

TEST_F(RunDirectoryTest, ACommitThatFailedCanBeTriedAgain) {
  const Manifest manifest = write_partial(0, "{}");
  sys::FaultyFiles count(sys::files());
  RunDirectory counted(run_.path(), count);
  counted.commit("checkpoint_000000.partial", manifest);
  run_.remove_checkpoint(0);
  for (std::uint64_t k = 1; k < count.operations(); ++k) {
    const Manifest again = write_partial(0, "{}");
    sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, EIO});
    RunDirectory broken(run_.path(), faulty);
    EXPECT_THROW(broken.commit("checkpoint_000000.partial", again), StorageError) << k;
    run_.commit("checkpoint_000000.partial", again);
    EXPECT_THAT(verify_checkpoint(run_.checkpoint_path(0)), IsEmpty());
    run_.remove_checkpoint(0);
  }
}

TEST_F(RunDirectoryTest, ListsCommittedCheckpointsByNumber) {
  for (const int seq : {10, 2, 1'000'001}) commit(seq);
  write_partial(11, "{}");
  fs::create_directory(run_.path() / "checkpoint_000005");
  spit(run_.path() / "checkpoint_000006", "a file");
  spit(run_.path() / "checkpoint_7/manifest.json", "{}");
  spit(run_.path() / "checkpoint_best/manifest.json", "{}");
  EXPECT_THAT(run_.checkpoints(), ElementsAre(2, 10, 1'000'001));
}

TEST_F(RunDirectoryTest, NextSeqIsAboveEverythingThatHasANumber) {
  EXPECT_EQ(run_.next_seq(), 0);
  commit(0);
  EXPECT_EQ(run_.next_seq(), 1);
  write_partial(4, "{}");
  EXPECT_EQ(run_.next_seq(), 5);
  fs::create_directory(run_.path() / "checkpoint_000008.trash");
  EXPECT_EQ(run_.next_seq(), 9);
  fs::create_directory(run_.path() / "checkpoint_best");
  fs::create_directory(run_.path() / "checkpoint_99999999999999999999");
  fs::create_directory(run_.path() / "checkpoint_2147483647");
  EXPECT_EQ(run_.next_seq(), 9);
}

TEST_F(RunDirectoryTest, RemovePartialsLeavesTheRest) {
  commit(0);
  write_partial(1, "{}");
  spit(run_.path() / "checkpoint_000000.trash/sub/x", "x");
  spit(run_.path() / "run.json.partial", "half");
  spit(run_.path() / "logs/rank_0.log", "line");
  run_.remove_partials();
  std::vector<std::string> names;
  for (const auto& item : sys::files().list(run_.path())) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("checkpoint_000000", "logs", "run.json"));
  EXPECT_TRUE(fs::exists(run_.logs() / "rank_0.log"));
  EXPECT_THAT(verify_checkpoint(run_.checkpoint_path(0)), IsEmpty());
}

TEST_F(RunDirectoryTest, RemoveCheckpoint) {
  commit(0);
  commit(1);
  spit(run_.path() / "checkpoint_000000.trash/x", "left by somebody who was killed");
  run_.remove_checkpoint(0);
  EXPECT_THAT(run_.checkpoints(), ElementsAre(1));
  EXPECT_FALSE(fs::exists(run_.path() / "checkpoint_000000"));
  EXPECT_FALSE(fs::exists(run_.path() / "checkpoint_000000.trash"));
  run_.remove_checkpoint(0);
}

TEST_F(RunDirectoryTest, LatestGoodFallsBackAndSaysSo) {
  std::vector<std::string> warnings;
  const auto latest = [&] {
    warnings.clear();
    return run_.latest_good([&](std::string text) { warnings.push_back(std::move(text)); });
  };
  EXPECT_FALSE(latest().has_value());
  for (const int seq : {0, 1, 2}) commit(seq);
  EXPECT_EQ(latest()->seq, 2);
  EXPECT_THAT(warnings, IsEmpty());

  spit(run_.checkpoint_path(2) / "data.json", "[]");
  EXPECT_EQ(latest()->seq, 1);
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("checkpoint_000002"), HasSubstr("data.json"),
                                          HasSubstr("checkpoint_000001"))));
  EXPECT_EQ(latest()->path, run_.checkpoint_path(1));
  EXPECT_EQ(latest()->manifest.seq, 1);

  spit(run_.checkpoint_path(1) / "manifest.json", "{");
  fs::remove(run_.checkpoint_path(0) / "sub/x");
  EXPECT_THROW(latest(), NoUsableCheckpoint);
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_THAT(warnings[2], AllOf(HasSubstr("sub/x is missing"), HasSubstr("no earlier one")));
}

TEST_F(RunDirectoryTest, LatestGoodDoesNotPassOverWhatCannotBeRead) {
  for (const int seq : {0, 1}) commit(seq);
  const auto no_warning = [](const std::string& text) { ADD_FAILURE() << text; };
  sys::FaultyFiles count(sys::files());
  ASSERT_EQ(RunDirectory(run_.path(), count).latest_good(no_warning)->seq, 1);
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    sys::FaultyFiles faulty(sys::files(), {k, sys::FaultyFiles::Fault::fail, EMFILE});
    try {
      RunDirectory(run_.path(), faulty).latest_good(no_warning);
      ADD_FAILURE() << k;
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(faulty.log()[k - 1].path.native()), HasSubstr("EMFILE"))) << k;
    }
  }
}

TEST_F(RunDirectoryTest, ADirectoryWithoutItsManifestIsDamaged) {
  for (const int seq : {0, 1}) commit(seq);
  std::vector<std::string> warnings;
  const auto warn = [&](std::string text) { warnings.push_back(std::move(text)); };
  fs::remove(run_.checkpoint_path(1) / "manifest.json");
  EXPECT_EQ(run_.latest_good(warn)->seq, 0);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("checkpoint_000001 is damaged (manifest.json is missing")));
  fs::remove(run_.checkpoint_path(0) / "manifest.json");
  EXPECT_THROW(run_.latest_good(warn), NoUsableCheckpoint);
}

/// The names in the order in which a power cut could make them count.
TEST_F(RunDirectoryTest, CommitAndRemoveSyncInTheRightOrder) {
  const Manifest manifest = write_partial(0, "{}");
  sys::FaultyFiles files(sys::files());
  RunDirectory run(run_.path(), files);
  run.commit("checkpoint_000000.partial", manifest);
  run.remove_checkpoint(0);
  std::vector<std::string> order;
  for (const auto& [name, path, target] : files.log())
    if (name != "info" && name != "list") order.push_back(name + " " + path.lexically_relative(run_.path()).string());
  EXPECT_THAT(
      order,
      ElementsAre("open checkpoint_000000.partial/manifest.json", "write checkpoint_000000.partial/manifest.json",
                  "sync checkpoint_000000.partial/manifest.json", "close checkpoint_000000.partial/manifest.json",
                  "sync_directory checkpoint_000000.partial", "rename checkpoint_000000.partial", "sync_directory .",
                  "rename checkpoint_000000", "sync_directory .", "remove_file checkpoint_000000.trash/data.json",
                  "remove_file checkpoint_000000.trash/manifest.json", "remove_file checkpoint_000000.trash/sub/x",
                  "remove_directory checkpoint_000000.trash/sub", "remove_directory checkpoint_000000.trash"));
}

}  // namespace
}  // namespace lockstep::store
