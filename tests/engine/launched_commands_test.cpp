#include "engine/launched_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/clock.h"

namespace lockstep::engine {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Seconds kPatience{20};

/// Runs shell scripts in the place of srun and ssh.
class Launched : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("launched_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void start(const std::string& node, const std::string& script, const std::string& secret = "s3cret") {
    Program::Options options;
    options.argv = {"sh", "-c", script};
    options.cwd = folder_;
    commands_.start(node, options, secret);
  }
  /// Waits until the file is there, and reads it.
  std::string note(const std::string& name) {
    for (const Instant deadline = now() + ticks(kPatience); now() < deadline && !fs::exists(folder_ / name);)
      ::poll(nullptr, 0, 5);
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<LaunchedCommands::Ended> wait_for_end() {
    for (const Instant deadline = now() + ticks(kPatience); now() < deadline; ::poll(nullptr, 0, 5))
      if (auto ended = commands_.ended(); !ended.empty()) return ended;
    return {};
  }

  fs::path folder_;
  LaunchedCommands commands_;
};

TEST_F(Launched, GetTheSecretAndEndWithTheirStandardInput) {
  start("a", "read secret; echo \"$secret\" > part; mv part got; cat; touch over");
  EXPECT_EQ(note("got"), "s3cret\n");
  EXPECT_THAT(commands_.ended(), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_ / "over"));
  EXPECT_THAT(commands_.stop(kPatience), IsEmpty());
  EXPECT_TRUE(fs::exists(folder_ / "over")) << "stop() waits";
}

TEST_F(Launched, TellHowTheyEndedWithTheirLastLines) {
  start("a", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i >&2; done; printf '\\033[31mred\\r\\n' >&2; exit 3");
  const auto ended = wait_for_end();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].node, "a");
  EXPECT_EQ(ended[0].status, (sys::ExitStatus{3, 0}));
  EXPECT_THAT(ended[0].lines,
              AllOf(HasSubstr("line 4\nline 5\n"), HasSubstr("line 12\n?[31mred"), Not(HasSubstr("line 3"))));
  EXPECT_THAT(commands_.ended(), IsEmpty()) << "told once";
}

TEST_F(Launched, TheirOutputIsKeptInBounds) {
  start("a", "head -c 1000000 /dev/zero | tr '\\0' x; touch full; cat; echo last words");
  note("full");
  EXPECT_THAT(commands_.ended(), IsEmpty());
  commands_.stop(kPatience);
}

TEST_F(Launched, ThatDoNotEndAreKilled) {
  start("a", "trap '' TERM; touch up; while true; do sleep 0.1; done");
  start("b", "trap 'touch terminated; exit' TERM; touch up2; while true; do sleep 0.01; done");
  note("up");
  note("up2");
  EXPECT_THAT(commands_.stop(Seconds(0.5)), ElementsAre("a"));
  EXPECT_TRUE(fs::exists(folder_ / "terminated"));
}

TEST_F(Launched, ANodeHasOneAtATime) {
  start("a", "echo $$ > part; mv part first; sleep 100");
  const int first = std::stoi(note("first"));
  start("a", "touch second; cat");
  note("second");
  EXPECT_EQ(::kill(first, 0), -1);
  EXPECT_THAT(commands_.ended(), IsEmpty()) << "the first was killed on purpose";
}

TEST_F(Launched, AForkedCopyLeavesThemAlone) {
  start("a", "touch up; cat; touch over");
  note("up");
  const pid_t child = ::fork();
  if (child == 0) {
    { const LaunchedCommands copy = std::move(commands_); }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(commands_.ended(), IsEmpty());
  EXPECT_THAT(commands_.stop(kPatience), IsEmpty());
  EXPECT_TRUE(fs::exists(folder_ / "over"));
}

TEST(Programs, ThatFailAreErrorsWithWhatTheySaid) {
  const auto run = [](const std::string& script, Seconds patience) {
    return output_of("[x]", {.argv = {"sh", "-c", script}}, patience);
  };
  EXPECT_EQ(run("echo a; echo b >&2", kPatience), "a\n");
  try {
    run("echo no such job >&2; exit 4", kPatience);
    FAIL();
  } catch (const EngineError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[x] \"sh -c "), HasSubstr("ended with code 4: no such job")));
  }
  EXPECT_THROW(run("sleep 100", Seconds(0.05)), EngineError);
  EXPECT_THROW(output_of("[x]", {.argv = {"no-such-program"}}, kPatience), EngineError);
}

/// The script that looks for the agent, run by a shell as srun and ssh do.
class AgentThere : public Launched {
 protected:
  void write_program(const fs::path& path, const std::string& script) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0700);
  }
  std::string run(const std::vector<std::string>& argv, const std::string& path) {
    const std::string line = shell_command(agent_there(argv));
    return output_of("[x]", {.argv = {"/bin/sh", "-c", line}, .env = {{{"PATH", path + ":/usr/bin:/bin"}}}}, kPatience);
  }
};

TEST_F(AgentThere, IsWhereItIsOnTheHead) {
  const auto agent = folder_ / "it's here" / "lockstep-agent";
  write_program(agent, "for word; do echo \"<$word>\"; done");
  EXPECT_EQ(run({agent, "--name", "a b", "'$HOME\"", ""}, "/none"), "<--name>\n<a b>\n<'$HOME\">\n<>\n");
}

TEST_F(AgentThere, OrThatOfTheCommandInPath) {
  write_program(folder_ / "bin" / "lockstep", "echo \"$@\"");
  EXPECT_EQ(run({"/no/such/lockstep-agent", "--join", "h:1"}, folder_ / "bin"), "agent --join h:1\n");
}

TEST_F(AgentThere, OrItSaysWhatToDo) {
  try {
    run({"/no/such/lockstep-agent", "--join", "h:1"}, "/none");
    FAIL();
  } catch (const EngineError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("code 127"), HasSubstr("lockstep is not installed on"),
                      HasSubstr("there is no /no/such/lockstep-agent"), HasSubstr("PATH, which is /none:")));
  }
}

}  // namespace
}  // namespace lockstep::engine
