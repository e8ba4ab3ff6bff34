#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/communicator.h"
#include "collective/fake_key_value_store.h"
#include "collective/fake_links.h"
#include "collective/spanning_group.h"

namespace lockstep::collective {

using namespace std::chrono_literals;

/// What a failing wait costs a test at most.
inline CommunicatorOptions quick_options() { return {.timeout = 60s, .join_timeout = 60s}; }

/// So small that most reductions between nodes need several.
inline constexpr std::size_t kTestChunk = 10000;

/// A group whose ranks are threads of this process, so that sanitizers see all of it. Returns what each rank threw; one
/// that throws leaves the group, so that the others do not wait for it.
inline std::vector<std::string> run_threads(int world, const CommunicatorOptions& options,
                                            const std::function<void(Communicator&)>& body) {
  const auto region = Region::create({world, options.slot_bytes, options.ring_bytes});
  std::vector<std::string> errors(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Communicator group(region, rank, options);
        body(group);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The same for a group on several nodes; the number of ranks of each. The network is a fake.
inline std::vector<std::string> run_nodes(const std::vector<int>& sizes, const CommunicatorOptions& options,
                                          FakeNetwork& network, const std::function<void(SpanningGroup&)>& body) {
  int world = 0;
  for (const int size : sizes) world += size;
  std::vector<std::shared_ptr<Region>> regions;
  Nodes nodes;
  for (const int size : sizes) {
    nodes.ranks.emplace_back();
    for (int place = 0; place < size; ++place) {
      const auto rank = nodes.node_of.size();
      nodes.node_of.push_back(static_cast<int>(regions.size()));
      nodes.place_of.push_back(place);
      nodes.ranks.back().push_back(static_cast<int>(rank));
      nodes.names.push_back("rank " + std::to_string(rank) + " (node " + std::to_string(regions.size()) + ")");
    }
    regions.push_back(Region::create({size, options.slot_bytes, options.ring_bytes}));
  }
  for (std::size_t node = 0; node < sizes.size(); ++node) regions[node]->set_names({nodes.ranks[node], nodes.names});
  std::vector<std::string> errors(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        auto local = std::make_unique<Communicator>(regions[nodes.node_of[rank]], nodes.place_of[rank], options);
        SpanningGroup group(std::move(local), network.links(rank), nodes, rank, kTestChunk);
        body(group);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The same with a process for each rank. Child processes of one test; what they say is their exit status: 0, or 1 with
/// a message on stderr.
class Ranks {
 public:
  Ranks(int world, const CommunicatorOptions& options, const std::function<void(Communicator&)>& body)
      : Ranks(world, [&](KeyValueStore& store, int rank) { body(*Communicator::join(store, rank, world, options)); }) {}

  Ranks(int world, const std::function<void(KeyValueStore&, int rank)>& body) {
    for (int rank = 0; rank < world; ++rank) {
      const int pid = ::fork();
      if (pid == 0) ::_exit(run(rank, body));
      pids_.push_back(pid);
    }
  }
  ~Ranks() {
    for (const int pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL);
    for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) wait(rank);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int pid(int rank) const { return pids_[rank]; }
  void signal(int rank, int number) const { ::kill(pids_[rank], number); }
  /// The exit status of a rank: its code, or minus its signal.
  int wait(int rank) {
    int status = 0;
    if (pids_[rank] <= 0 || ::waitpid(pids_[rank], &status, 0) < 0) return -1000;
    pids_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void expect_success() {
    for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) EXPECT_EQ(wait(rank), 0) << "rank " << rank;
  }

 private:
  int run(int rank, const std::function<void(KeyValueStore&, int rank)>& body) {
    try {
      body(store_, rank);
      return ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      return 1;
    }
  }

  FakeKeyValueStore store_;
  std::vector<int> pids_;
};

}  // namespace lockstep::collective
