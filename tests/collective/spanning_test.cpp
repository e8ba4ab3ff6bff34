#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <algorithm>
#include <future>
#include <latch>

#include "collective/join_group.h"
#include "ranks.h"
#include "reference.h"

namespace lockstep::collective {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What each rank threw in its first failing call.
std::vector<std::string> first_errors(const std::vector<int>& sizes, FakeNetwork& network,
                                      const std::function<void(SpanningGroup&)>& body) {
  CommunicatorOptions options = quick_options();
  options.grace = 60s;  // as if: a rank that waits for another node reports first
  return run_nodes(sizes, options, network, body);
}

void sum(Group& group, std::size_t count) {
  std::vector<float> data(count, 1);
  group.all_reduce(data.data(), data.data(), count, DType::float32, ReduceOp::sum);
  if (std::any_of(data.begin(), data.end(), [&](float each) { return each != static_cast<float>(group.size()); }))
    throw InternalError("wrong sum");
}

TEST(Spanning, TheSameBitsHoweverTheDataIsCut) {
  constexpr std::size_t kCount = 30001;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    std::vector<Bytes> results;
    for (const std::size_t bucket : {kCount, std::size_t{777}, std::size_t{12345}}) {
      FakeNetwork network;
      std::vector<Bytes> of_ranks(5);
      const auto errors = run_nodes({2, 3}, quick_options(), network, [&](Group& group) {
        Bytes data = random_elements(kCount, dtype, group.rank());
        for (std::size_t start = 0; start < kCount; start += bucket) {
          std::byte* part = data.data() + start * size_of(dtype);
          group.all_reduce(part, part, std::min(bucket, kCount - start), dtype, ReduceOp::avg);
        }
        of_ranks[group.rank()] = data;
      });
      EXPECT_THAT(errors, Each(""));
      results.insert(results.end(), of_ranks.begin(), of_ranks.end());
    }
    EXPECT_THAT(results, Each(results.front()));
  }
}

/// bfloat16 and float16 are rounded once, whatever the number of nodes: the exact sum differs by half a unit at most.
TEST(Spanning, HalfPrecisionIsRoundedOnce) {
  constexpr std::size_t kCount = 9999;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < 4; ++rank) inputs.push_back(random_elements(kCount, dtype, 50 + rank));
    FakeNetwork network;
    const auto errors = run_nodes({2, 2}, quick_options(), network, [&](Group& group) {
      Bytes data = inputs[group.rank()];
      group.all_reduce(data.data(), data.data(), kCount, dtype, ReduceOp::sum);
      for (std::size_t i = 0; i < kCount; ++i) {
        double exact = 0;
        for (const Bytes& input : inputs) exact += decode(bits_at(input, dtype, i), dtype);
        const double unit = std::ldexp(std::fabs(exact), -format_of(dtype).mantissa_bits);
        const double error = std::fabs(decode(bits_at(data, dtype, i), dtype) - exact);
        if (error > unit / 2 * 1.001 + 1e-7) throw InternalError("rounded more than once at " + std::to_string(i));
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

/// Each rank sends its part to other nodes, and its part of the result: what a flat ring sends is 1.5 times as much.
TEST(Spanning, AnAllReduceSendsEveryByteOnceBetweenTwoNodes) {
  FakeNetwork network;
  constexpr std::size_t kCount = std::size_t{1} << 18;
  const auto errors = run_nodes({2, 2}, quick_options(), network, [&](Group& group) { sum(group, kCount); });
  EXPECT_THAT(errors, Each(""));
  EXPECT_LT(network.bytes(), 2 * kCount * 4 + (std::size_t{64} << 10));
}

TEST(Spanning, DifferentCallsOnDifferentNodesAreShownOnAllRanks) {
  FakeNetwork network;
  const auto errors = first_errors({2, 2}, network, [](Group& group) {
    sum(group, 10);
    sum(group, group.rank() >= 2 ? 70000 : 80000);
  });
  for (const int rank : {0, 1})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("all_reduce of 80000 float32 by sum"), HasSubstr("rank 2"),
                                    HasSubstr("all_reduce of 70000 float32 by sum")));
  for (const int rank : {2, 3})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("all_reduce of 70000 float32 by sum"), HasSubstr("rank 0"),
                                    HasSubstr("all_reduce of 80000 float32 by sum")));
}

TEST(Spanning, DifferentCallsOnOneNodeEndTheOthers) {
  FakeNetwork network;
  const auto errors = first_errors({2, 2}, network, [](Group& group) { sum(group, group.rank() == 3 ? 7 : 8); });
  EXPECT_THAT(errors[2], HasSubstr("that of rank 3 is all_reduce of 7"));
  EXPECT_THAT(errors[3], HasSubstr("that of rank 2 is all_reduce of 8"));
  for (const int rank : {0, 1}) EXPECT_THAT(errors[rank], HasSubstr("(node 1)"));
}

TEST(Spanning, ALostNodeIsNamedOnAllRanks) {
  FakeNetwork network;
  const auto errors = first_errors({2, 2, 1}, network, [&](Group& group) {
    sum(group, 100000);
    if (group.rank() == 4) {
      network.kill(4);
      throw EngineError("killed");
    }
    sum(group, 100000);
  });
  for (const int rank : {0, 1, 2, 3})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("all_reduce 2"), HasSubstr("rank 4 (node 2)"))) << rank;
}

TEST(Spanning, ANodeThatIsCutOffIsNamedAtTheTimeout) {
  FakeNetwork network;
  const auto errors = first_errors({2, 2}, network, [&](Group& group) {
    group.barrier();
    group.set_timeout(300ms);
    if (group.rank() == 0)
      for (const int far : {2, 3}) network.cut(far);
    sum(group, 100000);
  });
  for (const int rank : {0, 1})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("timed out"), HasSubstr("heard nothing from rank"), HasSubstr("(node 1)"),
                                    HasSubstr("for 0.3s")))
        << rank;
  for (const int rank : {2, 3}) EXPECT_THAT(errors[rank], HasSubstr("(node 0)")) << rank;
}

TEST(Spanning, AnAbortEndsTheWaitsOfAllNodes) {
  FakeNetwork network;
  const auto errors = first_errors({2, 2}, network, [](Group& group) {
    group.barrier();
    if (group.rank() == 3)
      group.abort();
    else
      group.barrier();
  });
  EXPECT_THAT(errors[2], HasSubstr("rank 3 (pid"));
  for (const int rank : {0, 1}) EXPECT_THAT(errors[rank], HasSubstr("rank 3 (node 1) aborted the group"));
}

TEST(Spanning, ARankThatLeftIsNamedWhenItIsNeeded) {
  FakeNetwork network;
  const auto errors = first_errors({1, 1}, network, [](Group& group) {
    group.barrier();
    if (group.rank() == 0) group.barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 (node 1) left the group, and is needed"));
  EXPECT_EQ(errors[1], "");
}

TEST(Spanning, LaterCallsThrowTheSame) {
  FakeNetwork network;
  const auto errors = first_errors({1, 2}, network, [](Group& group) {
    EXPECT_THROW(group.broadcast(nullptr, 0, 3), ConfigError);  // harms nothing
    group.barrier();
    if (group.rank() == 0) {
      group.abort();
      EXPECT_THROW(group.barrier(), EngineError);
    }
    try {
      group.barrier();
    } catch (const EngineError&) {
    }
    group.barrier();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("aborted the group"));
}

// ---- messages -----------------------------------------------------------------------------------------------------

int exchange_message(Group& group, bool send, void* data, std::size_t bytes, int peer, std::int64_t tag) {
  std::promise<int> done;
  const auto end = [&](const std::exception_ptr& error, int source) {
    if (error)
      done.set_exception(error);
    else
      done.set_value(source);
  };
  const Message message{data, bytes, peer, tag, 60s};
  if (send)
    group.post_send(message, end);
  else
    group.post_receive(message, end);
  return done.get_future().get();
}

TEST(Spanning, MessagesFindTheirReceiverOnAnyNode) {
  FakeNetwork network;
  const auto errors = first_errors({2, 1}, network, [](Group& group) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{5000}, std::size_t{300000}}) {
      if (group.rank() == 0) {
        std::vector<int> sources;
        for (int i = 1; i < group.size(); ++i) {
          Bytes data(bytes);
          const int source = exchange_message(group, false, data.data(), bytes, kAnySource, 7);
          if (data != random_elements(bytes, DType::uint8, source)) throw InternalError("wrong message");
          sources.push_back(source);
        }
        std::sort(sources.begin(), sources.end());
        EXPECT_THAT(sources, ElementsAre(1, 2));
      } else {
        Bytes data = random_elements(bytes, DType::uint8, group.rank());
        exchange_message(group, true, data.data(), bytes, 0, 7);
      }
      group.barrier();
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Spanning, TagsKeepMessagesApartAndAWrongSizeIsAnErrorOfTheReceiver) {
  FakeNetwork network;
  const auto errors = first_errors({1, 1}, network, [](Group& group) {
    std::int32_t first = 1, second = 2;
    Bytes large(9000);
    if (group.rank() == 0) {
      exchange_message(group, true, &first, 4, 1, 1);
      exchange_message(group, true, &second, 4, 1, 2);
      exchange_message(group, true, large.data(), large.size(), 1, 3);
      exchange_message(group, true, &second, 4, 1, 3);
    } else {
      std::int32_t data = 0;
      exchange_message(group, false, &data, 4, 0, 2);
      EXPECT_EQ(data, 2);
      exchange_message(group, false, &data, 4, 0, 1);
      EXPECT_EQ(data, 1);
      EXPECT_THROW(exchange_message(group, false, &data, 4, 0, 3), ConfigError);
      exchange_message(group, false, &data, 4, 0, 3);
      EXPECT_EQ(data, 2);
    }
    group.finish_sends(60s);
    EXPECT_THROW(exchange_message(group, true, &first, 4, group.rank(), 0), ConfigError);
    EXPECT_THROW(exchange_message(group, true, &first, 4, 2, 0), ConfigError);
    EXPECT_THROW(exchange_message(group, true, &first, 4, 1 - group.rank(), -1), ConfigError);
    group.barrier();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Spanning, AReceiveFromALostRankEndsWithItsName) {
  FakeNetwork network;
  const auto errors = first_errors({1, 1}, network, [&](Group& group) {
    group.barrier();
    if (group.rank() == 1) return network.kill(1);
    int data = 0;
    exchange_message(group, false, &data, 4, 1, 0);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("receive"), HasSubstr("rank 1 (node 1)")));
}

// ---- joining ------------------------------------------------------------------------------------------------------

/// Every rank in a thread with its own Place; what each threw or made.
std::vector<std::string> join_all(const std::vector<Place>& places) {
  FakeKeyValueStore store;
  FakeNetwork network;
  const int world = static_cast<int>(places.size());
  std::vector<std::string> made(places.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto group =
            join_group(store, rank, world, quick_options(), places[rank], [&] { return network.links(rank); });
        const auto* spanning = dynamic_cast<SpanningGroup*>(group.get());
        sum(*group, 5000);
        made[rank] = spanning == nullptr ? "one node" : std::to_string(spanning->nodes().count()) + " nodes";
      } catch (const std::exception& error) {
        made[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return made;
}

TEST(JoinGroup, RanksOfEqualPlacesShareMemory) {
  EXPECT_THAT(join_all({{}, {}, {}}), Each("one node"));
  EXPECT_THAT(join_all({{.node = "a"}, {.node = "a"}}), Each("one node"));
  EXPECT_THAT(join_all({{.node = "a"}, {.node = "b"}, {.node = "a"}}), Each("2 nodes"));
  EXPECT_THAT(join_all({{.node = "a", .alone = true}, {.node = "b", .alone = true}}), Each("one node"));
}

TEST(JoinGroup, APlaceThatOnlySomeRanksWereToldIsRefused) {
  EXPECT_THAT(join_all({{.node = "a"}, {}}), Each(HasSubstr("set LOCKSTEP_COLLECTIVE_NODE on all ranks or on none")));
}

TEST(JoinGroup, NodesAreNumberedByTheirFirstRanks) {
  FakeKeyValueStore store;
  const std::vector<Place> places{{"x", "10.0.0.9"}, {"b", ""}, {"x", "10.0.0.9"}, {"a b:c", ""}};
  std::vector<Nodes> met(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] { met[rank] = meet_nodes(store, rank, 4, places[rank], 60s); });
  for (auto& thread : threads) thread.join();
  for (const Nodes& nodes : met) {
    EXPECT_THAT(nodes.node_of, ElementsAre(0, 1, 0, 2));
    EXPECT_THAT(nodes.place_of, ElementsAre(0, 0, 1, 0));
    EXPECT_THAT(nodes.ranks, ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
    EXPECT_EQ(nodes.names[2], "rank 2 (node 0, 10.0.0.9)");
    EXPECT_EQ(nodes.names[3], "rank 3 (node 2)");
    EXPECT_EQ(nodes.carriers(), 1);
  }
}

TEST(JoinGroup, RanksThatExpectOtherSizesAreRefused) {
  FakeKeyValueStore store;
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        meet_nodes(store, rank, 2 + rank, {}, 60s);
      } catch (const ConfigError& error) {
        errors[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 expects 3 ranks and rank 0 2")));
}

}  // namespace
}  // namespace lockstep::collective
