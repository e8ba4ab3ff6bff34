#include "driver/stacks.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

/// A worker's stacks: what stands above our own frames, and native frames.
std::string stacks_of(const std::string& frames, const std::string& native = "") {
  return "pid 7, state S (sleeping), waits in futex_do_wait\n"
         "Thread 0x00007f0000000001 (most recent call first):\n"
         "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n\n"
         "Current thread 0x00007f0000000000 (most recent call first):\n" +
         frames +
         "  File \"/x/python/lockstep/_pickling.py\", line 120 in call\n"
         "  File \"/x/python/lockstep/_worker.py\", line 126 in _call\n"
         "  File \"/x/python/lockstep/_worker.py\", line 97 in _run\n"
         "  File \"/x/python/lockstep/_fork_server.py\", line 50 in main\n"
         "Native stack (interrupted thread):\n"
         "/x/python/lockstep/_core.cpython-311-x86_64-linux-gnu.so(+0x10d128)[0x7efefef0d128]\n"
         "/lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7efeff45a050]\n" +
         native + "/lib/libpython3.11.so.1.0(_PyEval_EvalFrameDefault+0x2e53)[0x7efeff6fd9c3]\n";
}

const std::string kTrain = "  File \"/tmp/gloo/train.py\", line 8 in train_func\n";
const std::string kPackages = "  File \"/venv/lib/python3.11/site-packages/";

TEST(StacksTest, TheUsersInnermostLineIsTheOneThatCounts) {
  const auto summary = summarize_stacks(stacks_of(kTrain));
  EXPECT_EQ(summary.place, "/tmp/gloo/train.py, line 8 in train_func");
  EXPECT_EQ(summary.frames, kTrain) << "no other thread, nothing of ours, nothing native";
  EXPECT_FALSE(summary.waits) << "a folder of the user's may be named as it likes";
  EXPECT_FALSE(summary.in_library);
}

TEST(StacksTest, ALibraryThatDoesNotWaitForRanksIsNamedWithItsCaller) {
  const auto frames = "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n" + kPackages +
                      "torch/utils/data/dataloader.py\", line 1100 in _get_data\n" + kTrain;
  const auto summary = summarize_stacks(stacks_of(frames));
  EXPECT_EQ(summary.place, "/tmp/gloo/train.py, line 8 in train_func");
  EXPECT_TRUE(summary.in_library);
  EXPECT_FALSE(summary.waits);
}

TEST(StacksTest, CollectivesAndBarriersWaitForOtherRanks) {
  const auto waits_in = [](const std::string& frames) { return summarize_stacks(stacks_of(frames + kTrain)).waits_in; };
  EXPECT_EQ(waits_in(kPackages + "torch/distributed/distributed_c10d.py\", line 3245 in all_reduce\n" + kPackages +
                     "torch/distributed/c10d_logger.py\", line 83 in wrapper\n"),
            "all_reduce");
  EXPECT_EQ(waits_in(kPackages + "torch/distributed/utils.py\", line 286 in _verify_param_shape_across_processes\n" +
                     kPackages + "torch/nn/parallel/distributed.py\", line 1064 in __init__\n"),
            "_verify_param_shape_across_processes");
  EXPECT_EQ(waits_in(kPackages + "torch/distributed/distributed_c10d.py\", line 2500 in recv\n"), "recv");
  EXPECT_EQ(waits_in(kPackages + "horovod/torch/mpi_ops.py\", line 990 in synchronize\n"), "synchronize");
  EXPECT_EQ(waits_in(kPackages + "tensorflow/python/eager/execute.py\", line 53 in quick_execute\n"), "quick_execute");
  EXPECT_EQ(waits_in("  File \"/x/python/lockstep/session.py\", line 90 in barrier\n"), "barrier");
}

TEST(StacksTest, NativeFramesOfACollectiveWaitToo) {
  const std::string ours =
      "/x/python/lockstep/torch/_c10d_2_13_0.cpython-311-x86_64-linux-gnu.so(+0x5d05c)[0x7efedd]\n";
  const std::string work = "/venv/torch/lib/libtorch_cpu.so(_ZN4c10d4Work4waitENSt6chrono8durationIlEE+0x5b)[0x7f9e]\n";
  for (const auto& native : {ours, work, std::string("/opt/lib/libnccl.so.2(+0x5d05c)[0x7efedd]\n")}) {
    const auto summary = summarize_stacks(stacks_of(kTrain, native));
    EXPECT_TRUE(summary.waits) << native;
    EXPECT_EQ(summary.place, "/tmp/gloo/train.py, line 8 in train_func");
  }
  EXPECT_FALSE(summarize_stacks(stacks_of(kTrain, "/home/nccl/lib/libc.so.6(clock_nanosleep+0x65)[0x7]\n")).waits);
  EXPECT_TRUE(summarize_stacks("Native stack (interrupted thread):\n" + ours).waits) << "a C++ program has no other";
  const std::string hook = "/lib/libpython3.11.so.1.0(_PyEval_EvalFrameDefault+0x2e53)[0x7efeff6fd9c3]\n";
  EXPECT_FALSE(summarize_stacks(stacks_of(kTrain, hook + work)).waits) << "Python code that a collective called";
}

TEST(StacksTest, TheUsersOwnFunctionsMayHaveAnyName) {
  const auto frames = "  File \"/home/me/lockstep/examples/train.py\", line 3 in barrier\n" + kPackages +
                      "torch/distributed/algorithms/join.py\", line 9 in all_reduce\n" + kTrain;
  const auto summary = summarize_stacks(stacks_of(frames));
  EXPECT_FALSE(summary.waits) << "what a library called is the user's again";
  EXPECT_EQ(summary.place, "/home/me/lockstep/examples/train.py, line 3 in barrier");
}

TEST(StacksTest, ABackendThatStartsHasNoLineOfTheUsers) {
  const auto summary = summarize_stacks(stacks_of("  File \"/x/python/lockstep/torch/config.py\", line 5 in start\n"));
  EXPECT_EQ(summary.place, "/x/python/lockstep/torch/config.py, line 5 in start");
}

TEST(StacksTest, OddTextsTellNothing) {
  for (const char* text :
       {"", "pid 7, state T (stopped by a signal)\n", "Current thread 0x1 (most recent call first):\n", "  File \"",
        "Thread 0x1\n  File \"a\n", "Native stack (interrupted thread):\n((([[["}) {
    const auto summary = summarize_stacks(text);
    EXPECT_TRUE(summary.place.empty()) << text;
    EXPECT_FALSE(summary.waits) << text;
  }
}

TEST(StacksTest, AStackThatIsCutOffIsTheInterruptedThreads) {
  const auto summary = summarize_stacks("Current thread 0x1 (most recent call first):\n" + kTrain + "  ...\n");
  EXPECT_EQ(summary.place, "/tmp/gloo/train.py, line 8 in train_func");
}

}  // namespace
}  // namespace lockstep::driver
