#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "dashboard/access.h"
#include "dashboard/feed.h"
#include "dashboard/http.h"
#include "sys/node.h"

namespace lockstep::dashboard {

/// What each client may take of the server. A client that takes longer is disconnected.
struct ServerLimits {
  std::size_t header = 16 << 10;   ///< bytes of a request's header; more is answered with 431
  std::size_t connections = 256;   ///< further ones are closed at once
  std::size_t streams = 64;        ///< open pages; a further one is answered with 503
  Seconds request = Seconds(15);   ///< from the start of a connection, or the last answer, to a whole request
  Seconds response = Seconds(60);  ///< to take an answer, or an event
  Seconds heartbeat = Seconds(15);
};

struct ServerOptions {
  std::string host = sys::kLoopback;  ///< an address of this machine, or a name of one
  int port = 0;                       ///< 0: the system chooses
  std::string certificate, key;       ///< PEM; empty: no TLS
  Access access;                      ///< its `tls` is set by the server
  ServerLimits limits = {};
};

/// An HTTP/1.1 server: one thread for the network, two that answer. GET only, no bodies. `/api/events?place=ID&...` is
/// a stream of server-sent events: `{"ID": ["file", ...], ...}` for changes of the named places, and for listed changes
/// of all others. A client that reads slowly gets fewer, larger events; nothing piles up.
class Server {
 public:
  /// Listens. Throws EngineError if the address cannot be used, ConfigError if certificate and key cannot. `feed` and
  /// what `handler` uses outlive the server.
  Server(ServerOptions options, Handler handler, Feed& feed);
  ~Server();

  int port() const;
  /// Serves until stop(), SIGINT or SIGTERM.
  void run();
  /// Any thread may call it.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::dashboard
