#include "wire/codec.h"

#include <gtest/gtest.h>

#include <utility>

#include "samples.h"
#include "wire/channel.h"

namespace lockstep::wire {
namespace {

TEST(Codec, EveryFieldTravels) {
  const StartAttempt sent = sample_start();
  const auto addressed = decode_addressed<DriverToAgent>(encode({7, 3}, sent));
  EXPECT_EQ(addressed.envelope, (Envelope{7, 3}));
  const auto got = std::get<StartAttempt>(addressed.message);
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
  EXPECT_EQ(begin.peers, (std::vector<PeerNode>{{"10.0.0.1", 3}, {"10.0.0.2", 1}}));
  EXPECT_TRUE(begin.calls);
  EXPECT_EQ(begin.services, (std::map<std::string, Value>{{"empty", nullptr}, {"store", sample_value()}}));
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
  EXPECT_EQ(decode_value(encode(Heartbeat{5})).dump(), R"({"type":"heartbeat","progress":5})");
  EXPECT_EQ(decode_value(encode({4, 1}, WorkerStarted{1, 2, 3})).dump(),
            R"({"type":"worker_started","run":4,"node":1,"attempt":1,"rank":2,"pid":3})");
  EXPECT_EQ(to_value(FileEntry{"a", 1, "b"}).dump(), R"({"name":"a","size":1,"xxh3_128":"b"})");
  EXPECT_EQ(encode_value(to_value(Begin{})), encode(Begin{}));
}

template <class M>
void expect_no_field_of_the_envelope() {
  M message;
  const auto check = [](const char* name) {
    EXPECT_NE(std::string(name), "type") << M::kName;
    EXPECT_NE(std::string(name), "run") << M::kName;
    EXPECT_NE(std::string(name), "node") << M::kName;
  };
  std::apply([&](const auto&... field) { (check(field.first), ...); }, message.fields());
}

template <class Variant, std::size_t... I>
void expect_no_fields_of_the_envelope(std::index_sequence<I...>) {
  (expect_no_field_of_the_envelope<std::variant_alternative_t<I, Variant>>(), ...);
}

TEST(Codec, NoFieldIsCalledLikeOneOfTheEnvelope) {
  expect_no_fields_of_the_envelope<DriverToAgent>(std::make_index_sequence<std::variant_size_v<DriverToAgent>>());
  expect_no_fields_of_the_envelope<AgentToDriver>(std::make_index_sequence<std::variant_size_v<AgentToDriver>>());
}

TEST(Codec, ValuesGoBackToStructs) {
  const auto spec = from_value<WorkerSpec>(Value{{"rank", 3}, {"begin", {{"x", 1}}}});
  EXPECT_EQ(spec.rank, 3);
  EXPECT_EQ(spec.begin, (Value{{"x", 1}}));
  EXPECT_THROW(from_value<WorkerSpec>(Value{{"rank", "three"}}), WireError);
  EXPECT_THROW(from_value<WorkerSpec>(Value(7)), WireError);
}

TEST(Codec, TypeAndEnvelopeMayStandAnywhere) {
  const auto [envelope, message] = decode_addressed<AgentToDriver>(
      encode_value(Value{{"node", 2}, {"pid", 5}, {"attempt", {1}}, {"type", "agent_ready"}, {"run", 9}}));
  EXPECT_EQ(std::get<AgentReady>(message).pid, 5);
  EXPECT_EQ(envelope, (Envelope{9, 2}));
}

TEST(Codec, UnknownFieldsAreIgnoredAndMissingOnesKeepDefaults) {
  const auto [envelope, message] = decode_addressed<DriverToAgent>(
      encode_value(Value{{"type", "dump_stacks"}, {"new", {{"deep", {1, 2}}}}, {"attempt", 4}}));
  EXPECT_EQ(std::get<DumpStacks>(message).attempt, 4);
  EXPECT_EQ(std::get<DumpStacks>(message).timeout, 2);
  EXPECT_EQ(envelope, (Envelope{0, 0}));
}

TEST(Codec, WrongMessagesAreRefused) {
  const auto refuses = [](const Value& value) {
    EXPECT_THROW(decode_addressed<DriverToAgent>(encode_value(value)), WireError) << value;
  };
  refuses(Value{{"type", "no_such"}});
  refuses(Value{{"type", "agent_ready"}});  // of the other direction
  refuses(Value{{"attempt", 1}});
  refuses(Value{{"type", 5}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", "1"}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", std::int64_t{1} << 40}});
  refuses(Value{{"type", "stop_attempt"}, {"attempt", 1.5}});
  refuses(Value{{"type", "stop_attempt"}, {"run", "one"}});
  refuses(Value{{"type", "stop_attempt"}, {"run", std::int64_t{1} << 40}});
  refuses(Value{{"type", "stop_attempt"}, {"node", {0}}});
  refuses(Value{{"type", "start_attempt"}, {"payload", "text"}});
  refuses(Value::array({1, 2}));
  Bytes longer = encode({}, CountKept{});
  longer.push_back(0);
  EXPECT_THROW(decode_addressed<DriverToAgent>(longer), WireError);
  longer = encode(Settle{});
  longer.push_back(0);
  EXPECT_THROW(decode<DriverToWorker>(longer), WireError);
}

TEST(Codec, EveryPrefixIsRefused) {
  for (const Bytes& message : sample_messages())
    for (std::size_t size = 0; size < message.size(); ++size)
      EXPECT_THROW(decode_value(std::span(message).first(size)), WireError);
}

TEST(Codec, FramesAreAppendedWhole) {
  const Envelope envelope{2, 1};
  const FromWorker message{3, 1, encode(Heartbeat{5})};
  Bytes expected{1, 2}, appended{1, 2}, relayed{1, 2};
  append_frame(expected, encode(envelope, message));
  append_message(appended, envelope, message);
  append_from_worker(relayed, envelope, message.attempt, message.rank, message.message);
  EXPECT_EQ(appended, expected);
  EXPECT_EQ(relayed, expected);
}

}  // namespace
}  // namespace lockstep::wire
