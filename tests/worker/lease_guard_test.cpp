#include "worker/lease_guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lockstep::worker {
namespace {

double in(Seconds time) { return Seconds((now() + ticks(time)).time_since_epoch()).count(); }

/// How a process of its own group ends that does this.
template <class Body>
int end_of(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    body();
    ::_exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(LeaseGuard, KillsTheProcessWhenTheLeaseIsOver) {
  const int status = end_of([] {
    LeaseGuard guard;
    guard.renew(in(Seconds(0.05)));
    ::sleep(60);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(LeaseGuard, ALeaseThatIsRenewedOrStoppedHarmsNobody) {
  const int status = end_of([] {
    LeaseGuard guard;
    guard.renew(in(Seconds(0.2)));
    guard.renew(in(Seconds(600)));
    LeaseGuard stopped;
    stopped.renew(in(Seconds(0.2)));
    stopped.stop();
    ::usleep(400'000);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(LeaseGuard, ALeaseThatIsOverAlreadyKillsAtOnce) {
  const int status = end_of([] {
    LeaseGuard guard;
    guard.renew(in(Seconds(-1)));
    ::sleep(60);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace lockstep::worker
