#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/fake_key_value_store.h"

// Measures a collective of several processes; one process per rank, one thread each.
//
//     collective_benchmark RANKS BYTES SAMPLES [all_reduce|broadcast|all_gather|reduce_scatter|send|copy]
//     [float32|bfloat16|...]
//
// prints the samples of rank 0 in microseconds, one per line. `copy` is the lower bound: every rank copies BYTES in its
// own memory, all at once.

namespace {

using lockstep::now;
namespace collective = lockstep::collective;

struct Plan {
  int world;
  std::size_t bytes;
  int samples;
  std::string what;
  collective::DType dtype = collective::DType::float32;
};

collective::DType dtype_named(const std::string& name) {
  for (int i = 0; i < collective::kDTypes; ++i)
    if (to_string(static_cast<collective::DType>(i)) == name) return static_cast<collective::DType>(i);
  std::fprintf(stderr, "there is no dtype %s\n", name.c_str());
  std::exit(2);
}

/// Memory as frameworks have it: aligned and already in use.
std::byte* buffer(std::size_t bytes) {
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  std::memset(data, 0, bytes);
  return data;
}

void once(collective::Communicator& group, const Plan& plan, std::byte* a, std::byte* b) {
  const auto bytes = plan.bytes;
  const auto world = static_cast<std::size_t>(plan.world);
  if (plan.what == "all_reduce") {
    group.all_reduce(a, a, bytes / size_of(plan.dtype), plan.dtype, collective::ReduceOp::sum);
  } else if (plan.what == "broadcast") {
    group.broadcast(a, bytes, 0);
  } else if (plan.what == "all_gather") {
    group.all_gather(a, collective::rows(b, bytes / world, plan.world), bytes / world);
  } else if (plan.what == "reduce_scatter") {
    const auto in = collective::rows(static_cast<const void*>(b), bytes / world, plan.world);
    group.reduce_scatter(in, a, bytes / world / size_of(plan.dtype), plan.dtype, collective::ReduceOp::sum);
  } else if (plan.what == "send") {
    if (group.rank() == 0) group.send(a, bytes, 1);
    if (group.rank() == 1) group.receive(a, bytes, 0);
  } else if (plan.what == "copy") {
    std::memcpy(b, a, bytes);
  } else {
    std::fprintf(stderr, "there is no collective %s\n", plan.what.c_str());
    std::exit(2);
  }
}

int run_rank(collective::KeyValueStore& store, int rank, const Plan& plan) {
  const auto group = collective::Communicator::join(store, rank, plan.world);
  std::byte* a = buffer(plan.bytes);
  std::byte* b = buffer(plan.bytes);
  std::vector<double> samples;
  const int warm_up = std::max(3, plan.samples / 10);
  for (int i = 0; i < plan.samples + warm_up; ++i) {
    group->barrier();
    const auto start = now();
    once(*group, plan, a, b);
    const double seconds = lockstep::Seconds(now() - start).count();
    if (i >= warm_up) samples.push_back(seconds);
  }
  if (rank == 0)
    for (const double seconds : samples) std::printf("%.3f\n", seconds * 1e6);
  std::fflush(stdout);
  group->barrier();
  std::free(a);
  std::free(b);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: collective_benchmark RANKS BYTES SAMPLES [COLLECTIVE] [DTYPE]\n");
    return 2;
  }
  Plan plan{.world = std::atoi(argv[1]),
            .bytes = std::strtoull(argv[2], nullptr, 10),
            .samples = std::atoi(argv[3]),
            .what = argc > 4 ? argv[4] : "all_reduce"};
  if (argc > 5) plan.dtype = dtype_named(argv[5]);
  collective::FakeKeyValueStore store;
  for (int rank = 1; rank < plan.world; ++rank)
    if (::fork() == 0) return run_rank(store, rank, plan);
  const int result = run_rank(store, 0, plan);
  while (::wait(nullptr) > 0) {
  }
  return result;
}
