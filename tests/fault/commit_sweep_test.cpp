#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>
#include <sys/wait.h>

#include <csignal>

#include "../store/scratch.h"
#include "store/part_writer.h"
#include "store/run_directory.h"
#include "store/verify.h"
#include "sys/faulty_files.h"

/// Every system call of writing, committing and removing a checkpoint is made the last one of the process, or fails,
/// one after the other; whatever is left must be the old state or the new one, and a new run must be able to go on from
/// it.
namespace lockstep::store {
namespace {

namespace fs = std::filesystem;
using sys::FaultyFiles;
using Fault = FaultyFiles::Fault;

constexpr std::uint64_t kTooMany = 500;

Manifest write_part(sys::Files& files, const fs::path& run, int seq) {
  const std::string array(400'000, static_cast<char>('a' + seq));
  const std::vector<Tensor> tensors = {{"w", "U8", {400'000}, bytes_of(array)}};
  const std::string data = "{\"epoch\": " + std::to_string(seq) + "}";
  const std::vector<MemoryFile> more = {{"extra/state.bin", bytes_of("state")}};
  const fs::path partial = run / RunDirectory::partial_name(seq);
  Manifest manifest;
  manifest.seq = seq;
  manifest.ranks = {0};
  manifest.metrics = {{"epoch", seq}};
  // Two writers, as two ranks would.
  manifest.files = merge_parts({{0, PartWriter(files, partial).write_dict({data, tensors, std::nullopt})},
                                {1, PartWriter(files, partial).write_files(more)}});
  return manifest;
}

void write_and_commit(sys::Files& files, const fs::path& run, int seq) {
  const Manifest manifest = write_part(files, run, seq);
  RunDirectory(run, files).commit(RunDirectory::partial_name(seq), manifest);
}

/// A run with the checkpoints 0 to `count` - 1. Made once and then copied: a copy needs no syncs.
RunDirectory make_run(const Scratch& scratch, int count) {
  const fs::path model = scratch / "model";
  if (!fs::exists(model)) {
    RunDirectory run(model);
    run.create();
    run.write_run_json({{"state", "old"}});
    for (int seq = 0; seq < count; ++seq) write_and_commit(sys::files(), run.path(), seq);
  }
  fs::remove_all(scratch / "run");
  fs::copy(model, scratch / "run", fs::copy_options::recursive);
  return RunDirectory(scratch / "run");
}

void expect_loads(const RunDirectory& run, int seq) {
  const auto checkpoint = Checkpoint::from_directory(run.checkpoint_path(seq));
  EXPECT_EQ(checkpoint.to_dict(), (Value{{"epoch", seq}}));
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  EXPECT_EQ(checkpoint.tensors()[0].bytes[399'999], static_cast<std::byte>('a' + seq));
  EXPECT_EQ(run.checkpoint(seq).manifest.metrics, (Value{{"epoch", seq}}));
}

/// Every directory that bears a checkpoint's name is whole.
void expect_all_valid(const RunDirectory& run) {
  for (const auto& item : sys::files().list(run.path())) {
    if (!item.name.starts_with("checkpoint_") || item.name.ends_with(".partial") || item.name.ends_with(".trash"))
      continue;
    EXPECT_EQ(to_text(verify_checkpoint(run.path() / item.name)), "") << item.name;
  }
  const auto newest = run.latest_good([](std::string warning) { ADD_FAILURE() << warning; });
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->seq, run.checkpoints().back());
  for (const int seq : run.checkpoints()) expect_loads(run, seq);
}

/// What a restart does: clean up, then go on.
void expect_goes_on(RunDirectory& run) {
  const auto before = run.checkpoints();
  run.remove_partials();
  EXPECT_EQ(run.checkpoints(), before);
  for (const auto& item : sys::files().list(run.path()))
    EXPECT_FALSE(item.name.ends_with(".partial") || item.name.ends_with(".trash")) << item.name;
  const int next = run.next_seq();
  EXPECT_EQ(next, before.back() + 1);
  write_and_commit(sys::files(), run.path(), next);
  EXPECT_EQ(run.checkpoints().back(), next);
  expect_all_valid(run);
}

/// Runs `body` in a child that FaultyFiles kills at operation `k`; false when the child came to its end.
bool killed_at(std::uint64_t k, Fault fault, const std::function<void(sys::Files&)>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      FaultyFiles faulty(sys::files(), {k, fault});
      body(faulty);
    } catch (...) {
      code = 1;
    }
    ::_exit(code);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child ended with an error of its own at " << k;
  return false;
}

class KillSweep : public testing::TestWithParam<std::string> {
 protected:
  const Fault fault_ = GetParam() == "kill" ? Fault::kill : Fault::torn_write;
};
INSTANTIATE_TEST_SUITE_P(All, KillSweep, testing::Values("kill", "torn_write"));

TEST_P(KillSweep, CommitLeavesExactlyTheOldOrTheNewCheckpoint) {
  Scratch scratch;
  std::uint64_t k = 1;
  int with_old = 0, with_new = 0;
  for (; k < kTooMany; ++k) {
    SCOPED_TRACE("operation " + std::to_string(k));
    RunDirectory run = make_run(scratch, 1);
    const bool killed = killed_at(k, fault_, [&](sys::Files& files) { write_and_commit(files, run.path(), 1); });
    const auto seqs = run.checkpoints();
    ASSERT_TRUE(seqs == std::vector{0} || seqs == (std::vector{0, 1}));
    (seqs.size() == 1 ? with_old : with_new)++;
    expect_all_valid(run);
    if (!killed) break;
    expect_goes_on(run);
    if (testing::Test::HasFailure()) return;
  }
  ASSERT_LT(k, kTooMany);
  EXPECT_GT(with_old, 20);
  EXPECT_GE(with_new, 2) << "killed after the rename, and not killed";
}

TEST(RemoveSweep, RemovingLeavesAWholeCheckpointOrNone) {
  Scratch scratch;
  std::uint64_t k = 1;
  int there = 0, gone = 0;
  for (; k < kTooMany; ++k) {
    SCOPED_TRACE("operation " + std::to_string(k));
    RunDirectory run = make_run(scratch, 2);
    const bool killed =
        killed_at(k, Fault::kill, [&](sys::Files& files) { RunDirectory(run.path(), files).remove_checkpoint(0); });
    const auto seqs = run.checkpoints();
    ASSERT_TRUE(seqs == std::vector{1} || seqs == (std::vector{0, 1}));
    (seqs.size() == 2 ? there : gone)++;
    expect_all_valid(run);
    if (!killed) {
      EXPECT_FALSE(fs::exists(run.path() / "checkpoint_000000.trash"));
      break;
    }
    expect_goes_on(run);
    if (testing::Test::HasFailure()) return;
  }
  ASSERT_LT(k, kTooMany);
  EXPECT_GE(there, 2);
  EXPECT_GE(gone, 5);
}

TEST_P(KillSweep, RunJsonIsTheOldOrTheNew) {
  Scratch scratch;
  RunDirectory run = make_run(scratch, 0);
  std::uint64_t k = 1;
  for (; k < kTooMany; ++k) {
    run.write_run_json({{"state", "old"}});
    const bool killed = killed_at(k, fault_, [&](sys::Files& files) {
      RunDirectory(run.path(), files).write_run_json({{"state", "new"}});
    });
    const std::string state = run.read_run_json().at("state");
    EXPECT_TRUE(state == "old" || state == "new");
    if (!killed) {
      EXPECT_EQ(state, "new");
      break;
    }
  }
  EXPECT_GT(k, 5u);
  ASSERT_LT(k, kTooMany);
}

TEST(RemoveSweep, RemovingPartialsCanBeKilledToo) {
  Scratch scratch;
  std::uint64_t k = 1;
  for (; k < kTooMany; ++k) {
    SCOPED_TRACE("operation " + std::to_string(k));
    RunDirectory run = make_run(scratch, 1);
    write_part(sys::files(), run.path(), 1);
    const bool killed =
        killed_at(k, Fault::kill, [&](sys::Files& files) { RunDirectory(run.path(), files).remove_partials(); });
    expect_all_valid(run);
    if (!killed) break;
    expect_goes_on(run);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(k, 5u);
  ASSERT_LT(k, kTooMany);
}

class ErrorSweep : public testing::TestWithParam<std::string> {
 protected:
  /// A disk error may pass; a full disk stays full.
  FaultyFiles::Plan plan(std::uint64_t k) const {
    return GetParam() == "EIO" ? FaultyFiles::Plan{k, Fault::fail, EIO, false}
                               : FaultyFiles::Plan{k, Fault::fail, ENOSPC, true};
  }
};
INSTANTIATE_TEST_SUITE_P(All, ErrorSweep, testing::Values("EIO", "ENOSPC"));

TEST_P(ErrorSweep, CommitFailsClearlyAndThePreviousCheckpointLoads) {
  Scratch scratch;
  FaultyFiles count(sys::files());
  write_and_commit(count, make_run(scratch, 1).path(), 1);
  ASSERT_GT(count.operations(), 20u);
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    SCOPED_TRACE("operation " + std::to_string(k) + ": " + count.log()[k - 1].name);
    RunDirectory run = make_run(scratch, 1);
    FaultyFiles faulty(sys::files(), plan(k));
    const std::string message = message_of<StorageError>([&] { write_and_commit(faulty, run.path(), 1); });
    EXPECT_THAT(message, testing::HasSubstr(GetParam() == "EIO" ? "Input/output error" : "free some space"));
    EXPECT_THAT(message, testing::HasSubstr(run.path().string()));
    expect_loads(run, 0);
    expect_all_valid(run);
    expect_goes_on(run);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(ErrorSweep, RemovingFailsClearlyAndTheOthersLoad) {
  Scratch scratch;
  FaultyFiles count(sys::files());
  RunDirectory(make_run(scratch, 2).path(), count).remove_checkpoint(0);
  for (std::uint64_t k = 1; k <= count.operations(); ++k) {
    SCOPED_TRACE("operation " + std::to_string(k) + ": " + count.log()[k - 1].name);
    RunDirectory run = make_run(scratch, 2);
    FaultyFiles faulty(sys::files(), plan(k));
    EXPECT_THROW(RunDirectory(run.path(), faulty).remove_checkpoint(0), StorageError);
    expect_all_valid(run);
    expect_goes_on(run);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ShortWrites, CommitIsWholeAllTheSame) {
  Scratch scratch;
  RunDirectory run = make_run(scratch, 1);
  FaultyFiles faulty(sys::files(), {1, Fault::short_write, 0, true});
  write_and_commit(faulty, run.path(), 1);
  EXPECT_EQ(run.checkpoints(), (std::vector{0, 1}));
  expect_all_valid(run);
}

}  // namespace
}  // namespace lockstep::store
