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

namespace lockstep::collective {

using namespace std::chrono_literals;

/// What a failing wait costs a test at most.
inline CommunicatorOptions quick_options() { return {.timeout = 60s, .join_timeout = 60s}; }

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
