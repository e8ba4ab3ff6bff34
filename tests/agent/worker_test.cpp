#include "agent/worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string_view>
#include <utility>

#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

/// A worker whose fork server tells its pid only when the test says so.
class LateWorker : public ::testing::Test {
 protected:
  LateWorker() : worker_(loop_, link_, 0, 0, [this](Worker&) { loop_.stop(); }) {}

  void start() {
    sys::SpawnOptions options;
    options.argv = {"/bin/sleep", "60"};
    worker_.started(sys::spawn(options));
  }

  Loop loop_;
  std::pair<sys::Descriptor, sys::Descriptor> sockets_ = sys::socket_pair();
  DriverLink link_{loop_, std::move(sockets_.first), 0, {}};
  Worker worker_;
};

TEST_F(LateWorker, ThatIsToEndIsKilledWhenItsPidIsKnown) {
  auto ends = worker_.open({});
  worker_.kill();
  start();
  loop_.run();
  EXPECT_EQ(worker_.status().signal, SIGKILL);
}

TEST_F(LateWorker, ThatSentGarbageIsKilledWhenItsPidIsKnown) {
  auto ends = worker_.open({});
  constexpr std::string_view garbage = "\xff\xff\xff\xff\xff\xff\xff\xff not a frame";
  ASSERT_EQ(::write(ends.socket.get(), garbage.data(), garbage.size()), static_cast<ssize_t>(garbage.size()));
  Timer later(loop_);
  later.set(Seconds(0.05), [this] { start(); });  // long after the garbage was read
  loop_.run();
  EXPECT_EQ(worker_.status().signal, SIGKILL);
}

}  // namespace
}  // namespace lockstep::agent
