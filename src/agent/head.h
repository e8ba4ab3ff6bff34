#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/peer_link.h"
#include "agent/relay.h"
#include "engine/head_link.h"

namespace lockstep::agent {

/// The head agent's side of the connections to the agents of other nodes. It listens as long as the engine's connection
/// (engine/head_link.h) is open. Who does not prove the secret within some seconds, sends nonsense, has another version
/// or the name of a node that is there, is refused; nothing else happens.
class Head : public Relay {
 public:
  /// `engine`: the engine's connection.
  Head(Loop& loop, sys::Descriptor engine);

  Stream join(Client& client) override;
  void leave(Stream stream) override;
  bool send(int node, Stream stream, std::span<const std::uint8_t> frame) override;
  bool close(int node, Stream stream) override;
  void hold(int node, Stream stream, bool hold) override;

 private:
  /// A connection that has not joined yet, or is refused and lasts until the other side has read why.
  struct Guest {
    std::unique_ptr<PeerLink> link;
    std::string address, head_address;  ///< of the other side, and ours
    Timer timer;
    bool refused = false;
  };
  struct Node {
    std::string name;
    std::unique_ptr<PeerLink> link;
    Timer timer;
    std::map<Stream, wire::FrameReader> readers;
  };
  using Guests = std::list<Guest>;

  void read_engine();
  void shut();
  void listen(const engine::head_link::Listen& listen);
  void accept();
  void take_in(sys::Descriptor socket, std::string address);
  void on_hello(Guests::iterator guest, std::span<const std::uint8_t> message);
  std::string objection_to(const wire::Hello& hello) const;
  int index_for(const std::string& name);
  void admit(Guests::iterator guest, const wire::Hello& hello);
  void refuse(Guests::iterator guest, const std::string& why);
  void drop(Guests::iterator guest, const std::string& why);
  void on_message(int node, std::span<const std::uint8_t> message);
  void on_data(int node, Stream stream, std::span<const std::uint8_t> bytes);
  void watch_over(int node);
  void lose(int node, const std::string& why);
  void tell_engine(engine::head_link::Notice notice);
  void tell_untold();
  void note_refusal(const std::string& who, const std::string& why);
  /// Destroys a link later, because the call may come from one of its handlers.
  void bury(std::unique_ptr<PeerLink> link);

  Loop& loop_;
  sys::Descriptor engine_;
  std::optional<engine::head_link::Listen> settings_;
  sys::Descriptor listener_;
  Watch engine_watch_, listener_watch_;
  std::deque<engine::head_link::Notice> untold_;  ///< until the engine reads
  Guests guests_;
  std::map<int, Node> nodes_;
  int next_node_ = 1;
  std::map<Stream, Client*> clients_;
  Stream next_stream_ = 1;
  Instant told_refusal_{};
  int untold_refusals_ = 0;
  std::shared_ptr<std::vector<std::unique_ptr<PeerLink>>> buried_ =
      std::make_shared<std::vector<std::unique_ptr<PeerLink>>>();
};

}  // namespace lockstep::agent
