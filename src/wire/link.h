#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "wire/messages.h"

/// What agents tell each other, as the messages on stream 0 of their connection (src/agent/peer_link.h). All other
/// streams carry the frames between the driver and this node's agent: one stream for each connection of the driver.
///
///     node ── Hello, Beat, StreamEnded ──► head
///     node ◄─ Welcome, Refused, BeatSeen, CloseStream, HoldStream ── head
namespace lockstep::wire {

/// The first message of an agent that joins.
struct Hello {
  static constexpr const char* kName = "hello";
  int wire = kVersion;
  std::string version;  ///< Lockstep's
  std::string name;     ///< of the node; unique in the run
  std::string host;
  int pid = 0;
  std::map<std::string, double> resources;  ///< what it offers: "CPU", "GPU" and others
  std::vector<std::string> gpu_ids;
  std::map<std::string, std::string> interfaces;  ///< IPv4 addresses by interface
  LOCKSTEP_FIELDS(wire, version, name, host, pid, resources, gpu_ids, interfaces);
};

/// The answer: the node's index, and after how many seconds without a sign of life it counts as lost.
struct Welcome {
  static constexpr const char* kName = "welcome";
  int node = 0;
  double node_timeout = 0;
  LOCKSTEP_FIELDS(node, node_timeout);
};

/// The other answer. The connection ends.
struct Refused {
  static constexpr const char* kName = "refused";
  std::string why;
  LOCKSTEP_FIELDS(why);
};

/// A sign of life of the node, answered by BeatSeen with the same number, which prolongs the node's lease.
struct Beat {
  static constexpr const char* kName = "beat";
  std::int64_t number = 0;
  LOCKSTEP_FIELDS(number);
};

struct BeatSeen {
  static constexpr const char* kName = "beat_seen";
  std::int64_t number = 0;
  LOCKSTEP_FIELDS(number);
};

/// The driver has closed the connection of this stream: end its workers, then answer StreamEnded.
struct CloseStream {
  static constexpr const char* kName = "close_stream";
  std::int64_t stream = 0;
  LOCKSTEP_FIELDS(stream);
};

/// The driver is slow to read: send nothing on this stream until `hold` is false.
struct HoldStream {
  static constexpr const char* kName = "hold_stream";
  std::int64_t stream = 0;
  bool hold = false;
  LOCKSTEP_FIELDS(stream, hold);
};

/// Nothing more comes on this stream, and no process of it is left on the node.
struct StreamEnded {
  static constexpr const char* kName = "stream_ended";
  std::int64_t stream = 0;
  LOCKSTEP_FIELDS(stream);
};

using NodeToHead = std::variant<Hello, Beat, StreamEnded>;
using HeadToNode = std::variant<Welcome, Refused, BeatSeen, CloseStream, HoldStream>;

}  // namespace lockstep::wire
