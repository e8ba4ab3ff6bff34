#include "wire/codec.h"

#include <gtest/gtest.h>

#include "samples.h"
#include "wire/channel.h"

namespace lockstep::wire {
namespace {

TEST(Codec, EveryFieldTravels) {
  const StartAttempt sent = sample_start();
  const auto got = std::get<StartAttempt>(decode<DriverToAgent>(encode(sent)));
  EXPECT_EQ(got.attempt, 2);
  EXPECT_EQ(got.payload, sent.payload);
  ASSERT_EQ(got.workers.size(), 2u);
  EXPECT_EQ(got.workers[0].begin, sent.workers[0].begin);
  EXPECT_EQ(got.workers[1].rank, 1);
  EXPECT_TRUE(got.workers[1].begin.is_null());

  const auto begin = std::get<Begin>(decode<DriverToWorker>(encode_value(got.workers[0].begin)));
  EXPECT_EQ(begin.rank, 1);
  EXPECT_EQ(begin.world_size, 4);
  EXPECT_EQ(begin.config, sample_value());
  EXPECT_EQ(begin.env.at("B"), "\xff not utf-8");
  EXPECT_EQ(begin.python_path, (std::vector<std::string>{"/a", "", "/b"}));
  EXPECT_EQ(begin.checkpoint_files.at(0), (std::pair<std::string, Bytes>{"data.json", {1, 2, 3}}));
  EXPECT_EQ(begin.heartbeat_interval, 0.5);
}

TEST(Codec, CheckpointWrittenTravels) {
  const auto got = std::get<CheckpointWritten>(decode<WorkerToDriver>(encode(sample_checkpoint())));
  EXPECT_EQ(got.files, sample_checkpoint().files);
  EXPECT_EQ(got.contents, sample_checkpoint().contents);
  EXPECT_EQ(got.score, 0.5);
  EXPECT_EQ(got.partial, "checkpoint_000005.partial");
  EXPECT_FALSE(std::get<CheckpointWritten>(decode<WorkerToDriver>(encode(CheckpointWritten{}))).score.has_value());
}

TEST(Codec, ReportsTravel) {
  const auto got = std::get<Reports>(decode<WorkerToDriver>(encode(sample_reports(100))));
  ASSERT_EQ(got.reports.size(), 100u);
  EXPECT_EQ(got.reports[7].index, 7);
  EXPECT_TRUE(got.reports[7].has_checkpoint);
  EXPECT_EQ(got.reports[8].timestamp, 1.7e9 + 8);
  EXPECT_EQ(decode_value(got.reports[99].metrics), (Value{{"epoch", 99}, {"loss", 0.01}}));
}

TEST(Codec, AMessageIsAPlainMapWithItsType) {
  EXPECT_EQ(decode_value(encode(WorkerStarted{1, 2, 3})).dump(),
            R"({"type":"worker_started","attempt":1,"rank":2,"pid":3})");
  EXPECT_EQ(to_value(WorkerStarted{1, 2, 3}), decode_value(encode(WorkerStarted{1, 2, 3})));
  EXPECT_EQ(to_value(FileEntry{"a", 1, "b"}).dump(), R"({"name":"a","size":1,"xxh3_128":"b"})");
}

TEST(Codec, ValuesGoBackToStructs) {
  const auto spec = from_value<WorkerSpec>(Value{{"rank", 3}, {"begin", {{"x", 1}}}});
  EXPECT_EQ(spec.rank, 3);
  EXPECT_EQ(spec.begin, (Value{{"x", 1}}));
  EXPECT_THROW(from_value<WorkerSpec>(Value{{"rank", "three"}}), WireError);
  EXPECT_THROW(from_value<WorkerSpec>(Value(7)), WireError);
}

TEST(Codec, TypeMayStandAnywhere) {
  const auto message =
      decode<AgentToDriver>(encode_value(Value{{"pid", 5}, {"attempt", {1}}, {"type", "agent_ready"}}));
  EXPECT_EQ(std::get<AgentReady>(message).pid, 5);
}

TEST(Codec, UnknownFieldsAreIgnoredAndMissingOnesKeepDefaults) {
  const auto message =
      decode<DriverToAgent>(encode_value(Value{{"type", "dump_stacks"}, {"new", {{"deep", {1, 2}}}}, {"attempt", 4}}));
  EXPECT_EQ(std::get<DumpStacks>(message).attempt, 4);
  EXPECT_EQ(std::get<DumpStacks>(message).timeout, 2);
}

TEST(Codec, WrongMessagesAreRefused) {
  const auto refuses = [](const Value& value) {
    EXPECT_THROW(decode<DriverToAgent>(encode_value(value)), WireError) << value;
  };
  refuses(Value{{"type", "no_such"}});
  refuses(Value{{"type", "agent_ready"}});  // of the other direction
  refuses(Value{{"attempt", 1}});
  refuses(Value{{"type", 5}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", "1"}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", std::int64_t{1} << 40}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", 1.5}});
  refuses(Value{{"type", "start_attempt"}, {"payload", "text"}});
  refuses(Value::array({1, 2}));
  Bytes longer = encode(Shutdown{});
  longer.push_back(0);
  EXPECT_THROW(decode<DriverToAgent>(longer), WireError);
}

TEST(Codec, EveryPrefixIsRefused) {
  for (const Bytes& message : sample_messages())
    for (std::size_t size = 0; size < message.size(); ++size)
      EXPECT_THROW(decode_value(std::span(message).first(size)), WireError);
}

TEST(Codec, FramesAreAppendedWhole) {
  const FromWorker message{3, 1, encode(Heartbeat{5})};
  Bytes expected{1, 2}, appended{1, 2}, relayed{1, 2};
  append_frame(expected, encode(message));
  append_message(appended, message);
  append_from_worker(relayed, message.attempt, message.rank, message.message);
  EXPECT_EQ(appended, expected);
  EXPECT_EQ(relayed, expected);
}

}  // namespace
}  // namespace lockstep::wire
