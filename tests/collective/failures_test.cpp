#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <new>

#include "ranks.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What ranks tell the test: memory of both.
struct Notes {
  Word ready{0};
  std::array<std::atomic<std::int64_t>, 8> noticed{};  ///< when a rank's call failed
  std::array<std::array<char, 500>, 8> messages{};

  void failed(int rank, const std::exception& error) {
    noticed[rank].store(now().time_since_epoch().count());
    std::snprintf(messages[rank].data(), messages[rank].size(), "%s", error.what());
  }
  void announce() {
    ready.fetch_add(1);
    futex_wake(ready);
  }
  void wait_for(std::uint32_t count) {
    for (std::uint32_t seen; (seen = ready.load()) < count;) futex_wait(ready, seen, now() + 60s);
  }
};

class SharedNotes {
 public:
  SharedNotes()
      : notes_(new (::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Notes) {}
  ~SharedNotes() { ::munmap(notes_, sizeof(Notes)); }
  SharedNotes(const SharedNotes&) = delete;
  SharedNotes& operator=(const SharedNotes&) = delete;
  Notes* operator->() const { return notes_; }

 private:
  Notes* notes_;
};

std::string text(const SharedNotes& notes, int rank) { return notes->messages[rank].data(); }

class Death : public ::testing::TestWithParam<int> {};

/// Rank 1 is killed while the others wait for it in a call; the median of five kills, on whatever else the machine
/// does.
TEST_P(Death, WakesAllWithin50Milliseconds) {
  const int world = GetParam();
  std::vector<double> slowest;
  for (int kill = 0; kill < 5; ++kill) {
    const SharedNotes notes;
    Ranks ranks(world, quick_options(), [&](Communicator& group) {
      group.barrier();
      notes->announce();
      if (group.rank() == 1)
        while (true) ::pause();
      try {
        std::vector<float> data(100000);
        group.all_reduce(data.data(), data.data(), data.size(), DType::float32, ReduceOp::sum);
      } catch (const EngineError& error) {
        notes->failed(group.rank(), error);
      }
      // The error stays.
      EXPECT_THROW(group.barrier(), EngineError);
    });
    notes->wait_for(world);
    const auto killed = now().time_since_epoch().count();
    ranks.signal(1, SIGKILL);
    EXPECT_EQ(ranks.wait(1), -SIGKILL);
    const std::string name = "rank 1 (pid ";
    double slow = 0;
    for (int rank = 0; rank < world; ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(ranks.wait(rank), 0);
      EXPECT_THAT(text(notes, rank), AllOf(HasSubstr(name), HasSubstr("died"), HasSubstr("all_reduce")));
      slow = std::max(slow, static_cast<double>(notes->noticed[rank].load() - killed) / 1e6);
    }
    slowest.push_back(slow);
  }
  std::sort(slowest.begin(), slowest.end());
  EXPECT_LT(slowest[2], 50) << "milliseconds";
}

INSTANTIATE_TEST_SUITE_P(Failures, Death, ::testing::Values(2, 3, 5),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

/// The one who watches the dying rank is stopped itself; rank 2 waits in a collective, in a message, for a posted one.
TEST(Failures, ADeathIsNoticedThoughTheNeighbourIsStopped) {
  using Failed = std::function<void(const std::exception_ptr&)>;
  const std::vector<std::pair<std::string, std::function<void(Communicator&, const Failed&)>>> waits{
      {"barrier", [](Communicator& group, const Failed&) { group.barrier(); }},
      {"receive", [](Communicator& group, const Failed&) { group.receive(nullptr, 0, 0); }},
      {"receive", [](Communicator& group, const Failed& failed) {
         std::promise<void> done;
         group.mail().post_receive({nullptr, 0, 0, 0, 60s}, [&](const std::exception_ptr& error, int) {
           failed(error);
           done.set_value();
         });
         done.get_future().wait();
       }}};
  for (const auto& [name, wait] : waits) {
    std::vector<double> times;
    for (int kill = 0; kill < 3; ++kill) {
      const SharedNotes notes;
      Ranks ranks(3, quick_options(), [&, &wait = wait](Communicator& group) {
        const auto failed = [&](const std::exception_ptr& exception) {
          try {
            std::rethrow_exception(exception);
          } catch (const EngineError& error) {
            notes->failed(2, error);
          }
        };
        group.barrier();
        notes->announce();
        if (group.rank() != 2)
          while (true) ::pause();
        try {
          wait(group, failed);
        } catch (...) {
          failed(std::current_exception());
        }
      });
      notes->wait_for(3);
      ranks.signal(0, SIGSTOP);
      std::this_thread::sleep_for(50ms);  // rank 2 sleeps by now, and rank 0 is stopped
      const auto killed = now().time_since_epoch().count();
      ranks.signal(1, SIGKILL);
      EXPECT_EQ(ranks.wait(2), 0);
      EXPECT_THAT(text(notes, 2), AllOf(HasSubstr(name), HasSubstr("rank 1 (pid "), HasSubstr("died")));
      times.push_back(static_cast<double>(notes->noticed[2].load() - killed) / 1e6);
    }
    std::sort(times.begin(), times.end());
    EXPECT_LT(times[1], 50) << "milliseconds, " << name;
  }
}

TEST(Failures, TwoDeathsAtOnceAreNoticed) {
  const SharedNotes notes;
  Ranks ranks(4, quick_options(), [&](Communicator& group) {
    group.barrier();
    notes->announce();
    if (group.rank() == 1 || group.rank() == 2)
      while (true) ::pause();
    try {
      group.barrier();
    } catch (const EngineError& error) {
      notes->failed(group.rank(), error);
    }
  });
  notes->wait_for(4);
  ranks.signal(1, SIGKILL);
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 3}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    EXPECT_THAT(text(notes, rank), HasSubstr("died"));
  }
}

/// The one who would have noticed has left before.
TEST(Failures, ADeathIsNoticedThoughTheNeighbourLeft) {
  const SharedNotes notes;
  Ranks ranks(4, [&](KeyValueStore& store, int rank) {
    auto group = Communicator::join(store, rank, 4, quick_options());
    group->barrier();
    if (rank == 1) group.reset();
    notes->announce();
    if (rank == 1) return;
    if (rank == 2)
      while (true) ::pause();
    try {
      group->receive(nullptr, 0, 2);
    } catch (const EngineError& error) {
      notes->failed(rank, error);
    }
  });
  notes->wait_for(4);
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 3}) {
    EXPECT_EQ(ranks.wait(rank), 0);
    EXPECT_THAT(text(notes, rank), AllOf(HasSubstr("receive"), HasSubstr("rank 2 (pid "), HasSubstr("died")));
  }
}

/// exit() without leaving is a death too.
TEST(Failures, AnExitWithoutLeavingIsADeath) {
  const SharedNotes notes;
  Ranks ranks(2, quick_options(), [&](Communicator& group) {
    group.barrier();
    if (group.rank() == 1) ::_exit(0);
    try {
      group.barrier();
    } catch (const EngineError& error) {
      notes->failed(0, error);
    }
  });
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_THAT(text(notes, 0), AllOf(HasSubstr("rank 1 (pid " + std::to_string(ranks.pid(1)) + ")"), HasSubstr("died")));
}

TEST(Failures, ASilentRankIsNamedAtTheTimeout) {
  const SharedNotes notes;
  Ranks ranks(3, quick_options(), [&](Communicator& group) {
    group.barrier();
    if (group.rank() == 2) {
      notes->announce();
      while (true) ::pause();
    }
    group.set_timeout(group.rank() == 0 ? 200ms : 60s);
    try {
      group.barrier();
    } catch (const TimeoutError& error) {
      notes->failed(group.rank(), error);
    }
  });
  notes->wait_for(1);
  ranks.signal(2, SIGSTOP);
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
  const std::string silent = "rank 2 (pid " + std::to_string(ranks.pid(2)) + ")";
  EXPECT_THAT(text(notes, 0), AllOf(HasSubstr("nothing from " + silent), HasSubstr("barrier 2")));
  // Rank 1 does not wait for its own, longer timeout.
  EXPECT_THAT(text(notes, 1), AllOf(HasSubstr("gave up waiting for " + silent), HasSubstr("rank 0")));
}

TEST(Failures, OneWhoComesTooLateHearsOfIt) {
  const auto errors = run_threads(2, quick_options(), [](Communicator& group) {
    if (group.rank() == 0) {
      group.set_timeout(50ms);
      group.barrier();
    } else {
      int value;
      try {
        group.receive(&value, sizeof value, 0);  // ends when rank 0 has given up
      } catch (const TimeoutError&) {
      }
      group.barrier();
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("nothing from rank 1"));
  EXPECT_THAT(errors[1], HasSubstr("gave up waiting for this rank"));
}

TEST(Failures, AbortWakesTheOthers) {
  const auto errors = run_threads(3, quick_options(), [](Communicator& group) {
    if (group.rank() == 1)
      group.abort();
    else
      group.barrier();
  });
  EXPECT_EQ(errors[1], "");
  for (const int rank : {0, 2}) EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1 (pid "), HasSubstr("aborted")));
}

/// Ranks leave the moment their last call returns, in whatever order: none sees an error.
TEST(Failures, LeavingAfterTheLastCallHarmsNobody) {
  for (int i = 0; i < 100; ++i)
    ASSERT_THAT(run_threads(3, quick_options(),
                            [](Communicator& group) {
                              std::vector<float> data(20000, 1);
                              group.all_reduce(data.data(), data.data(), data.size(), DType::float32, ReduceOp::sum);
                            }),
                ::testing::Each(""));
}

TEST(Failures, ARankThatLeftIsAnErrorForWhoNeedsIt) {
  const auto errors = run_threads(3, quick_options(), [](Communicator& group) {
    group.barrier();
    if (group.rank() == 1) return;
    group.barrier();
  });
  EXPECT_EQ(errors[1], "");
  for (const int rank : {0, 2})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("barrier 2: rank 1 (pid "), HasSubstr("left the group")));
}

TEST(Failures, AChildOfForkIsNoMember) {
  Ranks ranks(2, quick_options(), [](Communicator& group) {
    int value = 1;
    group.all_reduce(&value, &value, 1, DType::int32, ReduceOp::sum);
    const int child = ::fork();
    if (child == 0) {
      const Message message{&value, sizeof value, 1 - group.rank(), 0, 1s};
      const std::vector<std::function<void()>> calls{
          [&] { group.barrier(); },
          [&] { group.abort(); },
          [&] { group.send(&value, sizeof value, 1 - group.rank()); },
          [&] { group.receive(&value, sizeof value, 1 - group.rank()); },
          [&] { group.mail().send(message); },
          [&] { group.mail().receive(message); },
          [&] { group.mail().post_send(message, nullptr); },
          [&] { group.mail().post_receive(message, nullptr); },
          [&] { group.mail().finish_sends(1s); },
      };
      const auto refused = std::count_if(calls.begin(), calls.end(), [](const auto& call) {
        try {
          call();
        } catch (const ConfigError& error) {
          return std::string(error.what()).find("its child") != std::string::npos;
        }
        return false;
      });
      group.~Communicator();  // as an interpreter that ends would
      ::_exit(static_cast<int>(calls.size() - refused));
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    // The child's end was nobody's death, and its farewell nobody's leaving.
    group.all_reduce(&value, &value, 1, DType::int32, ReduceOp::sum);
    EXPECT_EQ(value, 4);
  });
  ranks.expect_success();
}

long entries(const char* directory) {
  return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
}

/// Threads of this process that the group started; a sanitizer may have some of its own.
int own_threads() {
  int found = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(thread.path() / "comm") >> name;
    found += name.starts_with("ls-") ? 1 : 0;
  }
  return found;
}

TEST(Failures, LeavingGivesEverythingBack) {
  Ranks ranks(2, [](KeyValueStore& store, int rank) {
    const long descriptors = entries("/proc/self/fd");
    {
      const auto group = Communicator::join(store, rank, 2, quick_options());
      EXPECT_EQ(entries("/proc/self/fd"), descriptors);
      int value = 0;
      group->mail().post_send({&value, sizeof value, 1 - rank, 0, 60s}, nullptr);
      group->receive(&value, sizeof value, 1 - rank);
      group->barrier();
      EXPECT_GE(own_threads(), 1);
    }
    EXPECT_EQ(entries("/proc/self/fd"), descriptors);
    EXPECT_EQ(own_threads(), 0);
  });
  ranks.expect_success();
}

}  // namespace
}  // namespace lockstep::collective
