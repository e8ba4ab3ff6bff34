#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <algorithm>
#include <random>

#include "ranks.h"
#include "reference.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Staging so small that most sizes below need many rounds.
CommunicatorOptions small_options() {
  CommunicatorOptions options = quick_options();
  options.slot_bytes = 4096;
  return options;
}

/// 0, 1, odd, the border of the staging, far beyond it.
const std::vector<std::size_t> kCounts{0, 1, 7, 1023, 1024, 4097, 20011};

#define REQUIRE(condition) \
  if (!(condition)) throw InternalError(std::string("not so: " #condition ", rank ") + std::to_string(group.rank()))

/// The numbers of ranks on each node.
class World : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void run(const std::function<void(Group&)>& body) {
    if (GetParam().size() == 1) {
      EXPECT_THAT(run_threads(GetParam().front(), small_options(), body), Each(""));
    } else {
      FakeNetwork network;
      EXPECT_THAT(run_nodes(GetParam(), small_options(), network, body), Each(""));
    }
  }
};

class Processes : public ::testing::TestWithParam<int> {};

std::vector<Bytes> inputs_of_all(int world, std::size_t count, DType dtype, std::uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < world; ++rank) inputs.push_back(random_elements(count, dtype, seed * 100 + rank));
  return inputs;
}

TEST_P(World, ReducesEveryDTypeOfEverySizeByEveryOperation) {
  run([&](Group& group) {
    std::mt19937_64 random(1);
    for (int t = 0; t < kDTypes; ++t) {
      for (int o = 0; o < kReduceOps; ++o) {
        const auto dtype = static_cast<DType>(t);
        const auto op = static_cast<ReduceOp>(o);
        if (!supported(dtype, op)) continue;
        const std::uint64_t seed = random();
        const std::size_t count = kCounts[seed % kCounts.size()];
        const int root = static_cast<int>(seed / 7 % group.size());
        const auto inputs = inputs_of_all(group.size(), count, dtype, seed);
        const Bytes expected = expected_elements(inputs, dtype, op, GetParam());
        // In place, and from one buffer to another.
        Bytes data = inputs[group.rank()];
        group.all_reduce(data.data(), data.data(), count, dtype, op);
        REQUIRE(data == expected);
        Bytes out(expected.size(), std::byte{7});
        group.all_reduce(inputs[group.rank()].data(), out.data(), count, dtype, op);
        REQUIRE(out == expected);
        Bytes untouched(expected.size(), std::byte{9}), at_root = untouched;
        group.reduce(inputs[group.rank()].data(), at_root.data(), count, dtype, op, root);
        REQUIRE(at_root == (group.rank() == root ? expected : untouched));
      }
    }
  });
}

TEST_P(World, SumsOfEverySize) {
  run([&](Group& group) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::int8, DType::int64}) {
      for (const std::size_t count : kCounts) {
        const auto inputs = inputs_of_all(group.size(), count, dtype, count);
        Bytes data = inputs[group.rank()];
        group.all_reduce(data.data(), data.data(), count, dtype, ReduceOp::sum);
        REQUIRE(data == expected_elements(inputs, dtype, ReduceOp::sum, GetParam()));
      }
    }
  });
}

TEST_P(World, ReduceScatterGivesEachRankItsPart) {
  run([&](Group& group) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::uint16, DType::boolean}) {
      for (const std::size_t count : kCounts) {
        const std::size_t bytes = count * size_of(dtype);
        const auto inputs = inputs_of_all(group.size(), count * group.size(), dtype, count);
        const Bytes all = expected_elements(inputs, dtype, ReduceOp::max);
        const auto in = rows(static_cast<const void*>(inputs[group.rank()].data()), bytes, group.size());
        Bytes out(bytes);
        group.reduce_scatter(in, out.data(), count, dtype, ReduceOp::max);
        REQUIRE(std::equal(out.begin(), out.end(), all.begin() + group.rank() * bytes));
        // Into the part of the input that is this rank's own.
        Bytes data = inputs[group.rank()];
        const auto parts = rows(data.data(), bytes, group.size());
        group.reduce_scatter({const_cast<const void* const*>(parts.data()), parts.size()}, parts[group.rank()], count,
                             dtype, ReduceOp::max);
        const auto own = data.begin() + group.rank() * bytes;
        REQUIRE(std::equal(own, own + bytes, all.begin() + group.rank() * bytes));
      }
    }
  });
}

TEST_P(World, CopiesGoWhereTheyShould) {
  run([&](Group& group) {
    const int me = group.rank(), world = group.size();
    for (const std::size_t bytes : kCounts) {
      const auto inputs = inputs_of_all(world, bytes * world, DType::uint8, bytes);
      const auto part = [&](int rank, int index) {
        return Bytes(inputs[rank].begin() + index * bytes, inputs[rank].begin() + (index + 1) * bytes);
      };
      for (int root = 0; root < world; ++root) {
        Bytes data = part(me, 0);
        group.broadcast(data.data(), bytes, root);
        REQUIRE(data == part(root, 0));
        Bytes gathered(me == root ? bytes * world : 0);
        const Bytes own = part(me, 0);
        const auto out = me == root ? rows(gathered.data(), bytes, world) : std::vector<void*>{};
        group.gather(own.data(), out, bytes, root);
        for (int rank = 0; me == root && rank < world; ++rank)
          REQUIRE(Bytes(gathered.begin() + rank * bytes, gathered.begin() + (rank + 1) * bytes) == part(rank, 0));
        const auto in =
            me == root ? rows(static_cast<const void*>(inputs[me].data()), bytes, world) : std::vector<const void*>{};
        Bytes scattered(bytes);
        group.scatter(in, scattered.data(), bytes, root);
        REQUIRE(scattered == part(root, me));
      }
      Bytes gathered(bytes * world);
      const Bytes own = part(me, 0);
      group.all_gather(own.data(), rows(gathered.data(), bytes, world), bytes);
      for (int rank = 0; rank < world; ++rank)
        REQUIRE(Bytes(gathered.begin() + rank * bytes, gathered.begin() + (rank + 1) * bytes) == part(rank, 0));
    }
  });
}

/// Inputs are places of the outputs that belong to another rank, and the other way round.
TEST_P(World, CopiesMayTakeEachOthersPlaces) {
  run([&](Group& group) {
    const int me = group.rank(), world = group.size();
    for (const std::size_t bytes : kCounts) {
      const auto inputs = inputs_of_all(world, bytes * world, DType::uint8, bytes);
      const auto part = [&](int rank, int index) {
        return Bytes(inputs[rank].begin() + index * bytes, inputs[rank].begin() + (index + 1) * bytes);
      };
      for (int shift = 0; shift < world; ++shift) {
        const auto place = [&](int rank) { return (rank + shift) % world; };
        Bytes data = inputs[me];
        const auto places = rows(data.data(), bytes, world);
        const std::span<const void* const> in{const_cast<const void* const*>(places.data()), places.size()};
        group.all_gather(places[place(me)], places, bytes);
        for (int rank = 0; rank < world; ++rank)
          REQUIRE(std::ranges::equal(std::span(data).subspan(rank * bytes, bytes), part(rank, place(rank))));
        data = inputs[me];
        const int root = shift;
        const auto out = me == root ? places : std::vector<void*>{};
        group.gather(places[place(me)], out, bytes, root);
        for (int rank = 0; me == root && rank < world; ++rank)
          REQUIRE(std::ranges::equal(std::span(data).subspan(rank * bytes, bytes), part(rank, place(rank))));
        data = inputs[me];
        group.scatter(me == root ? in : std::span<const void* const>{}, places[place(me)], bytes, root);
        REQUIRE(std::ranges::equal(std::span(data).subspan(place(me) * bytes, bytes), part(root, me)));
        data = inputs[me];
        std::vector<ConstBuffer> given;
        std::vector<Buffer> taken;
        for (int rank = 0; rank < world; ++rank) {
          given.push_back({places[rank], bytes});
          taken.push_back({places[place(rank)], bytes});
        }
        group.all_to_all(given, taken);
        for (int rank = 0; rank < world; ++rank)
          REQUIRE(std::ranges::equal(std::span(data).subspan(place(rank) * bytes, bytes), part(rank, me)));
      }
    }
  });
}

TEST_P(World, AllToAllTakesSizesThatDiffer) {
  run([&](Group& group) {
    const int me = group.rank(), world = group.size();
    for (const std::size_t scale : {0, 1, 997}) {
      const auto size = [&](int from, int to) { return scale * static_cast<std::size_t>((from * 3 + to * 5) % 7); };
      const auto data = [&](int from, int to) {
        return random_elements(size(from, to), DType::uint8, static_cast<std::uint64_t>(from * 100 + to));
      };
      std::vector<Bytes> given, taken;
      std::vector<ConstBuffer> in;
      std::vector<Buffer> out;
      for (int rank = 0; rank < world; ++rank) {
        given.push_back(data(me, rank));
        taken.emplace_back(size(rank, me));
      }
      for (int rank = 0; rank < world; ++rank) {
        in.push_back({given[rank].data(), given[rank].size()});
        out.push_back({taken[rank].data(), taken[rank].size()});
      }
      group.all_to_all(in, out);
      for (int rank = 0; rank < world; ++rank) REQUIRE(taken[rank] == data(rank, me));
    }
  });
}

TEST_P(Processes, MixedCalls) {
  Ranks ranks(GetParam(), small_options(), [](Communicator& group) {
    std::mt19937_64 random(5);  // the same calls on all ranks
    for (int i = 0; i < 200; ++i) {
      const std::size_t count = random() % 3000;
      const auto inputs = inputs_of_all(group.size(), count, DType::float32, random());
      Bytes data = inputs[group.rank()];
      if (random() % 3 == 0) {
        const int root = static_cast<int>(random() % group.size());
        group.broadcast(data.data(), data.size(), root);
        REQUIRE(data == inputs[root]);
      } else {
        group.all_reduce(data.data(), data.data(), count, DType::float32, ReduceOp::avg);
        REQUIRE(data == expected_elements(inputs, DType::float32, ReduceOp::avg));
      }
    }
  });
  ranks.expect_success();
}

INSTANTIATE_TEST_SUITE_P(Collectives, Processes, ::testing::Values(1, 2, 3, 4, 5),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

using Sizes = std::vector<int>;
INSTANTIATE_TEST_SUITE_P(Collectives, World,
                         ::testing::Values(Sizes{1}, Sizes{2}, Sizes{3}, Sizes{4}, Sizes{5}, Sizes{1, 1}, Sizes{2, 2},
                                           Sizes{3, 1}, Sizes{1, 2}, Sizes{2, 3, 1}, Sizes{1, 1, 1}, Sizes{2, 2, 2, 2}),
                         [](const auto& info) {
                           std::string name = "Of";
                           for (const int size : info.param) name += std::to_string(size);
                           return name;
                         });

/// Staging, buckets and active waiting change the time, never the bits.
TEST(Collectives, TheSameBitsHoweverTheDataIsCut) {
  constexpr std::size_t kCount = 50001;
  constexpr int kWorld = 3;
  std::vector<Bytes> results;
  const auto run = [&](std::size_t slot_bytes, std::size_t bucket, bool spin) {
    CommunicatorOptions options = quick_options();
    options.slot_bytes = slot_bytes;
    options.spin = spin;
    std::vector<Bytes> of_ranks(kWorld);
    const auto errors = run_threads(kWorld, options, [&](Communicator& group) {
      Bytes data = random_elements(kCount, DType::float32, group.rank());
      for (std::size_t start = 0; start < kCount; start += bucket) {
        std::byte* part = data.data() + start * 4;
        group.all_reduce(part, part, std::min(bucket, kCount - start), DType::float32, ReduceOp::avg);
      }
      of_ranks[group.rank()] = data;
    });
    EXPECT_THAT(errors, Each(""));
    results.insert(results.end(), of_ranks.begin(), of_ranks.end());
  };
  run(4096, kCount, false);
  run(4096, 777, true);
  run(std::size_t{64} << 10, kCount, true);
  run(std::size_t{1} << 20, kCount, false);
  run(std::size_t{1} << 20, 12345, false);
  EXPECT_THAT(results, Each(results.front()));
  EXPECT_EQ(results.front(),
            expected_elements(inputs_of_all(kWorld, kCount, DType::float32, 0), DType::float32, ReduceOp::avg));
}

TEST(Collectives, DifferentCallsAreAnErrorOnAllRanks) {
  const auto errors = run_threads(3, quick_options(), [](Communicator& group) {
    std::vector<float> data(8);
    group.all_reduce(data.data(), data.data(), 8, DType::float32, ReduceOp::sum);
    group.all_reduce(data.data(), data.data(), group.rank() == 1 ? 7 : 8, DType::float32, ReduceOp::sum);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("all_reduce of 8 float32 by sum"), HasSubstr("rank 1"), HasSubstr("of 7")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("all_reduce of 7 float32 by sum"), HasSubstr("rank 0"), HasSubstr("of 8")));
  EXPECT_THAT(errors[2], HasSubstr("rank 1 is all_reduce of 7"));
}

TEST(Collectives, SizesOfAllToAllThatDisagreeAreAnErrorOnAllRanks) {
  const auto errors = run_threads(3, quick_options(), [](Communicator& group) {
    std::vector<std::byte> data(64);
    std::vector<ConstBuffer> in(3, ConstBuffer{data.data(), 8});
    std::vector<Buffer> out(3, Buffer{data.data(), 8});
    if (group.rank() == 2) out[0].bytes = 4;
    group.all_to_all(in, out);
  });
  EXPECT_THAT(errors[2], HasSubstr("rank 0 gives rank 2 8 bytes, which expects 4"));
  EXPECT_THAT(errors[0], HasSubstr("rank 2"));
  EXPECT_THAT(errors[1], HasSubstr("rank 2"));
}

TEST(Collectives, AllToAllWithItselfThatDisagreesIsAnErrorOnAllRanks) {
  const auto errors = run_threads(3, quick_options(), [](Communicator& group) {
    std::vector<std::byte> data(64);
    std::vector<ConstBuffer> in(3, ConstBuffer{data.data(), 8});
    std::vector<Buffer> out(3, Buffer{data.data(), 8});
    if (group.rank() == 1) out[1].bytes = 4;
    group.all_to_all(in, out);
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 1 gives rank 1 8 bytes, which expects 4"));
  for (const int rank : {0, 2}) EXPECT_THAT(errors[rank], AllOf(HasSubstr("rank 1"), HasSubstr("aborted")));
}

TEST(Collectives, ArgumentsThatCannotBeAreRefusedAndHarmNothing) {
  EXPECT_THAT(run_threads(2, quick_options(),
                          [](Communicator& group) {
                            float value = 1;
                            EXPECT_THROW(group.broadcast(&value, 4, 2), ConfigError);
                            EXPECT_THROW(group.broadcast(&value, 4, -1), ConfigError);
                            EXPECT_THROW(group.all_reduce(&value, &value, 1, DType::boolean, ReduceOp::avg),
                                         ConfigError);
                            EXPECT_THROW(group.all_gather(&value, std::vector<void*>{&value}, 4), ConfigError);
                            group.all_reduce(&value, &value, 1, DType::float32, ReduceOp::sum);
                            REQUIRE(value == 2);
                          }),
              Each(""));
}

TEST(Collectives, CallsOfSeveralThreadsOfARankAreOneAfterTheOther) {
  EXPECT_THAT(run_threads(2, quick_options(),
                          [](Communicator& group) {
                            std::vector<std::thread> threads;
                            std::vector<int> sums(4);
                            // Equal calls, so that their order between the threads does not matter.
                            for (int t = 0; t < 4; ++t)
                              threads.emplace_back([&, t] {
                                for (int i = 0; i < 50; ++i) {
                                  std::int32_t value = 1;
                                  group.all_reduce(&value, &value, 1, DType::int32, ReduceOp::sum);
                                  sums[t] += value;
                                }
                              });
                            for (auto& thread : threads) thread.join();
                            REQUIRE(sums == std::vector<int>(4, 100));
                          }),
              Each(""));
}

}  // namespace
}  // namespace lockstep::collective
