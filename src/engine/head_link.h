#pragma once

#include <lockstep/value.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"

/// The connection of an engine that spans nodes to the head agent: a packet socket, passed over the control connection
/// with the word kWord. The engine sends a Listen; the agent answers with notices. A further Listen changes the names
/// alone. The head agent listens while the connection is open. When it is closed, the agents of all other nodes end.
namespace lockstep::engine::head_link {

inline constexpr const char* kWord = "listen";

/// What the head agent needs to let other agents join.
struct Listen {
  std::string address;             ///< IPv4, where it listens
  int port = 0;                    ///< 0: the system chooses
  Bytes secret;                    ///< 32 bytes, which an agent that joins must know
  Seconds node_timeout{5};         ///< a node without a sign of life for this long is lost
  std::vector<std::string> names;  ///< the nodes that may join, in the order of their indices; empty: any
};

/// It listens.
struct Listening {
  int port = 0;
};
/// It cannot listen.
struct Failed {
  std::string why;
};
struct Joined {
  int node = 0;  ///< from 1
  std::string name, host;
  std::string address;       ///< IPv4, by which the head reaches the node
  std::string head_address;  ///< by which the node reaches the head
  std::map<std::string, double> resources;
  std::vector<std::string> gpu_ids;
  std::map<std::string, std::string> interfaces;  ///< its addresses by interface
};
struct Lost {
  int node = 0;
  std::string why;
};
/// An agent that knows the secret was not let in.
struct TurnedAway {
  std::string name, why;
};
using Notice = std::variant<Listening, Failed, Joined, Lost, TurnedAway>;

void send(int socket, const Listen& listen);
void send(int socket, const Notice& notice);
/// The next packet; nothing at the end of the connection. Throws EngineError if it is not one of those.
std::optional<Listen> receive_listen(int socket);
std::optional<Notice> receive_notice(int socket);

}  // namespace lockstep::engine::head_link
