// The test program is its own worker: workers are started as this program and run their function in init().

#include <gtest/gtest.h>
#include <lockstep/trainer.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("LOCKSTEP_AGENT", TEST_AGENT, 0);
  lockstep::init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
