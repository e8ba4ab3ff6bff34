#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/peer_link.h"

namespace lockstep::agent {

/// The connection of a node's agent to the head agent. Each stream of it is a run's connection, which this agent serves
/// like one of a driver on its own machine.
///
/// The node has a lease: the head must have answered a sign of life that was sent within the last part of the node
/// timeout. When that is over, or the connection ends, `over` is called, and the agent must kill its workers: the head
/// may give their ranks to another node when the whole node timeout is over.
class Joined {
 public:
  struct Options {
    std::string host;  ///< of the head
    int port = 0;
    Bytes secret;
    wire::Hello hello;
    Seconds patience{300};  ///< for the head to listen
  };
  struct Handlers {
    std::function<void(int node)> welcome;
    std::function<void(sys::Descriptor)> run;   ///< a connection of the driver
    std::function<void(Instant until)> lease;   ///< when the workers must have ended, unless it is called again
    std::function<void(std::string why)> over;  ///< the last call
  };

  Joined(Loop& loop, Options options, Handlers handlers);

  bool was_welcome() const { return node_ != 0; }

 private:
  using Stream = PeerLink::Stream;
  /// The other end of a run's connection.
  struct Bridge {
    sys::Descriptor socket;
    Watch watch;
    Bytes outgoing;
    std::size_t done = 0;
    bool is_writing = false;
    bool is_closing = false;  ///< shut down when everything is written
    bool is_held = false;
  };

  void try_to_connect();
  void use(sys::Descriptor socket);
  void on_message(std::span<const std::uint8_t> message);
  void on(const wire::Welcome& message);
  void on(const wire::Refused& message);
  void on(const wire::BeatSeen& message);
  void on(const wire::CloseStream& message);
  void on(const wire::HoldStream& message);
  void on_data(Stream stream, std::span<const std::uint8_t> bytes);
  Bridge& bridge_of(Stream stream);
  void read(Stream stream);
  void write(Stream stream);
  void set_reading();
  void beat();
  void renew_lease();
  void end(const std::string& why);

  Loop& loop_;
  Options options_;
  Handlers handlers_;
  Instant give_up_;
  Timer timer_, lease_timer_;
  sys::Descriptor connecting_;
  Watch connecting_watch_;
  std::unique_ptr<PeerLink> link_;
  std::map<Stream, Bridge> bridges_;
  int node_ = 0;
  Seconds node_timeout_{0};
  std::int64_t beats_ = 0, seen_ = 0;
  std::map<std::int64_t, Instant> sent_;  ///< when each beat that is not answered was sent
  Instant lease_end_{};
  bool is_full_ = false;
  bool is_over_ = false;
};

}  // namespace lockstep::agent
