// The test program is its own worker: workers are started as this program and run their function in init().

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <lockstep/trainer.h>

int main(int argc, char** argv) {
  setenv("LOCKSTEP_AGENT", TEST_AGENT, 0);
  lockstep::init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  std::fflush(nullptr);
  _exit(result);  // one test aborted after it had passed, in the destructors of some global
}
