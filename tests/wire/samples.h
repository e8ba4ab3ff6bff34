#pragma once

#include <lockstep/array.h>

#include <limits>
#include <string>
#include <vector>

#include "wire/codec.h"

namespace lockstep::wire {

inline Value sample_value() {
  return Value{{"epoch", 3},
               {"loss", 0.25},
               {"name", "r\u00e9sum\u00e9"},
               {"nothing", nullptr},
               {"yes", true},
               {"list", {1, -2, 3.5, "x", Value::array()}},
               {"nested", {{"a", {{"b", Value::object()}}}}},
               {"big", std::numeric_limits<std::uint64_t>::max()},
               {"small", std::numeric_limits<std::int64_t>::min()},
               {"bytes", Value::binary({0, 255, 7})},
               {"array", Array{"int8", {3}, Bytes{1, 2, 3}}}};
}

inline StartAttempt sample_start() {
  Begin begin;
  begin.attempt = 2;
  begin.rank = 1;
  begin.world_size = 4;
  begin.trial_name = "t";
  begin.config = sample_value();
  begin.env = {{"A", "1"}, {"B", "\xff not utf-8"}};
  begin.python_path = {"/a", "", "/b"};
  begin.checkpoint_files = {{"data.json", {1, 2, 3}}, {"empty", {}}};
  begin.heartbeat_interval = 0.5;
  begin.peers = {{"10.0.0.1", 3}, {"10.0.0.2", 1}};
  begin.calls = true;
  begin.services = {{"empty", nullptr}, {"store", sample_value()}};
  StartAttempt start;
  start.attempt = 2;
  start.workers = {{0, to_value(begin)}, {1, nullptr}};
  start.payload = {9, 8, 7};
  return start;
}

inline Reports sample_reports(int count) {
  Reports reports;
  for (int i = 0; i < count; ++i)
    reports.reports.push_back({i, 1.7e9 + i, 0.001, i % 7 == 0, encode_value({{"epoch", i}, {"loss", 1.0 / (i + 1)}})});
  return reports;
}

inline CheckpointWritten sample_checkpoint() {
  return {5,
          "checkpoint_000005.partial",
          {{"a/b", 1234567890123, std::string(32, 'f')}, {"c", 0, ""}},
          {{"x", Bytes(300, 1)}},
          0.5};
}

/// One valid message of each direction and shape.
inline std::vector<Bytes> sample_messages() {
  return {encode({1, 0}, Configure{{"python", "-m", "x"}, {{"PATH", "/bin"}}, "/tmp", {"/lib"}}),
          encode({1, 2}, sample_start()),
          encode({3, 0}, ToWorker{1, -1, encode(MeetingDone{3, "late", {1, 2}})}),
          encode({3, 0}, StartWorker{2, {1, sample_value()}}),
          encode({3, 0}, StopWorker{2, 1}),
          encode({3, 0}, KeepWorkers{2}),
          encode({3, 0}, CountKept{}),
          encode({3, 0}, KeptWorkers{3, "rank 1 was killed by signal 9"}),
          encode({3, 4}, NodeLost{"it did not answer for 10 s"}),
          encode({3, 0}, WorkerAlive{1, 2}),
          encode({3, 0}, WorkerExited{1, 2, 0, 9, true, false}),
          encode({3, 0}, LogText{1, 2, "hello\n"}),
          encode(Payload{{1, 2, 3}}),
          encode(Lease{12.5}),
          encode(sample_reports(5)),
          encode(sample_checkpoint()),
          encode(WorkerFailed{{{"kind", "exception"}, {"rank", 1}}}),
          encode_value(sample_start().workers[0].begin)};
}

}  // namespace lockstep::wire
