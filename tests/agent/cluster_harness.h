#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "agent_harness.h"
#include "engine/head_link.h"

namespace lockstep::agent {

/// A head agent that lets others join, with the engine's role played by the test, and agents that join it by hand.
class ClusterHarness : public AgentHarness {
 protected:
  static constexpr const char* kSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

  void SetUp() override {
    AgentHarness::SetUp();
    folder_ = std::filesystem::path(testing::TempDir()) / ("cluster_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    write_secret("secret", kSecret);
  }

  void TearDown() override {
    engine_.reset();
    AgentHarness::TearDown();
    for (auto& [name, agent] : joined_) {
      expect_end(agent.pidfd.get(), 5s, name);
      sys::take_exit(agent.pidfd.get(), true);
    }
    std::filesystem::remove_all(folder_);
  }

  static Bytes secret() {
    Bytes bytes;
    const std::string text = kSecret;
    for (std::size_t i = 0; i < text.size(); i += 2)
      bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return bytes;
  }

  std::string write_secret(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const auto path = folder_ / name;
    std::ofstream(path) << text << "\n";
    ::chmod(path.c_str(), mode);
    return path;
  }

  /// The head listens.
  void listen(Seconds node_timeout = 5s, std::vector<std::string> names = {}) {
    auto [ours, theirs] = sys::packet_pair();
    const std::string word = engine::head_link::kWord;
    const std::array fds{theirs.get()};
    sys::send_with_fds(control_.get(), {reinterpret_cast<const std::uint8_t*>(word.data()), word.size()}, fds);
    engine_ = std::move(ours);
    engine::head_link::send(engine_.get(), {"127.0.0.1", 0, secret(), node_timeout, std::move(names)});
    port_ = notice<engine::head_link::Listening>().port;
  }

  /// The next notice that is an N; others before it are dropped.
  template <class N>
  N notice() {
    for (const Instant deadline = now() + kPatience; now() < deadline;) {
      pollfd item{engine_.get(), POLLIN, 0};
      if (::poll(&item, 1, 1000) != 1) continue;
      const auto given = engine::head_link::receive_notice(engine_.get());
      if (!given) break;
      if (const auto* found = std::get_if<N>(&*given)) return *found;
    }
    throw std::runtime_error("no such notice came");
  }

  /// Starts an agent that joins; `output` is its standard error.
  sys::Process start_joining(const std::string& name, const std::string& secret_file, const std::string& output = "") {
    sys::SpawnOptions options;
    options.argv = {
        LOCKSTEP_AGENT_PATH, "--join",   "127.0.0.1:" + std::to_string(port_), "--name", name, "--slots", "3",
        "--secret-file",     secret_file};
    options.own_session = true;
    sys::Descriptor file(::open((folder_ / (output.empty() ? name : output)).c_str(), O_CREAT | O_WRONLY, 0600));
    options.fds = {{file.get(), 2}};
    return sys::spawn(options);
  }
  std::string output(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  engine::head_link::Joined join(const std::string& name) {
    joined_[name] = start_joining(name, folder_ / "secret");
    return notice<engine::head_link::Joined>();
  }

  /// A run of its own that speaks with this node, and has its agent ready.
  std::unique_ptr<TestRun> run_on(int node) {
    auto run = std::make_unique<TestRun>(control_.get(), ++runs_);
    run->node_ = node;
    run->configure();
    return run;
  }

  std::filesystem::path folder_;
  sys::Descriptor engine_;
  int port_ = 0;
  std::map<std::string, sys::Process> joined_;
  int runs_ = 10;
};

}  // namespace lockstep::agent
