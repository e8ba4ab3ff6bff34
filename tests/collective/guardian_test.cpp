#include "collective/guardian.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <lockstep/error.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>

#include "ranks.h"

namespace lockstep::collective {
namespace {

using ::testing::HasSubstr;

/// The kernel finds it there though the process's own memory is gone already.
TEST(Guardian, TheListOfTheKernelLiesInTheSharedMemory) {
  const auto region = Region::create({2, 8192, 4096});
  const Guardian guardian(region, 1);
  RankWords& words = region->rank(1);
  robust_list_head* head = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(::syscall(SYS_get_robust_list, words.life.load() & FUTEX_TID_MASK, &head, &size), 0);
  ASSERT_EQ(head, &words.owned);
  ASSERT_EQ(head->list.next, &words.owned_entry);
  EXPECT_EQ(head->list.next->next, &head->list);
  EXPECT_EQ(reinterpret_cast<char*>(head->list.next) + head->futex_offset, reinterpret_cast<char*>(&words.life));
}

/// The kernel wakes one sleeper only, which may be the thread of a rank that is just leaving.
TEST(Guardian, WhoLeavesStillTellsOfADeath) {
  const auto region = Region::create({3, 8192, 4096});
  auto guardian = std::make_unique<Guardian>(region, 0);
  RankWords& next = region->rank(1);
  next.life.store(FUTEX_TID_MASK);
  next.presence.store(Presence::joined);
  guardian->watch();
  while ((next.life.load() & FUTEX_WAITERS) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);  // it sleeps on the word now
  next.life.fetch_or(FUTEX_OWNER_DIED);
  guardian.reset();
  ASSERT_TRUE(region->fault());
  EXPECT_EQ(region->fault()->kind, FaultKind::died);
  EXPECT_EQ(region->fault()->culprit, 1);
}

/// From now on the kernel has no robust futexes for this thread and those that it starts.
void forbid_robust_lists() {
  std::array<sock_filter, 4> rules{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_robust_list, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(Guardian, WithoutRobustFutexesThereIsNoGroup) {
  Ranks ranks(2, [](KeyValueStore& store, int rank) {
    forbid_robust_lists();
    EXPECT_THROW(Communicator::join(store, rank, 2, quick_options()), CannotShareMemory);
  });
  ranks.expect_success();
}

TEST(Guardian, ARankThatCannotWatchKeepsNobodyWaiting) {
  Ranks ranks(2, [](KeyValueStore& store, int rank) {
    if (rank == 1) forbid_robust_lists();
    try {
      Communicator::join(store, rank, 2, quick_options());
      ADD_FAILURE() << "rank " << rank << " has joined";
    } catch (const CannotShareMemory&) {
      EXPECT_EQ(rank, 1);
    } catch (const EngineError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 (pid "));
    }
  });
  ranks.expect_success();
}

}  // namespace
}  // namespace lockstep::collective
