#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/rendezvous_http.h"
#include "driver/rendezvous_members.h"
#include "sys/descriptor.h"

namespace lockstep::driver {

struct RendezvousOptions {
  std::vector<std::string> hosts;  ///< by rank: where it is taken to live
  bool elastic = false;            ///< members that die are replaced (Members)
  Seconds patience{2.0};           ///< see Members
  RequestLimits request;
  Seconds value_timeout{0.5};    ///< how long a value is waited for
  Seconds request_timeout{5.0};  ///< for a client to send its request, and to take the answer
  std::size_t most_connections = 1024;
  std::size_t most_bytes = 64 << 20;  ///< of all keys and values
};

/// The key-value store through which Horovod's workers (0.20 to 0.28, Gloo) find each other: HTTP on a port of
/// 127.0.0.1 that the system chooses, one connection a request.
///
///     PUT /scope/key       200
///     GET /scope/key       200 and the bytes, or 404: not there yet. A rank's addresses (the key is a number) are
///     waited
///                          for a while: clients would ask again and again
///     DELETE /scope/key    200; a rank says so when all are connected, and then nobody needs its keys
///
/// Elastic jobs have more. All but the last are Horovod's own:
///
///     PUT /global/rank_N                the first thing that a new worker says. It is held until the round is complete
///     GET /rank_and_size/host:local     a survivor asks for a new round: held likewise; the answer is its slot
///     PUT /worker_addresses/...         accepted, and not used
///     GET /losses/N                     held until a member is lost. The answer: the ports of the exchange that is
///                                       broken now, so that a rank can end what it still waits for there
///
/// What is put while a round is open belongs to the one that broke, and is dropped. Every attempt has a new port and an
/// empty store, so that nothing of a dead one is served.
///
/// Never waits, has no thread: `fd()` is readable when serve() has something to do. For one thread.
class Rendezvous {
 public:
  static constexpr const char* kAddress = "127.0.0.1";

  /// Opens nothing yet. Throws ConfigError when the hosts are wrong.
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Listens anew; who was connected is not any more. Throws EngineError.
  void begin_attempt();
  int port() const { return port_; }
  int fd() const { return events_.get(); }
  /// Does what can be done now. Returns the members that are stuck (Members::take_stuck).
  std::vector<int> serve(Instant now);
  /// When serve() is due though nobody speaks.
  std::optional<Instant> deadline() const;

  /// What a rank needs to take part: "address", "port" and its slot.
  Value place(int rank) const;
  /// A member died, and another takes its place; see Members.
  bool lose(int rank);

 private:
  enum class Waits { request, value, round, loss, to_be_sent };
  struct Connection {
    sys::Descriptor socket;
    RequestReader reader;
    Waits waits = Waits::request;
    Instant deadline{};
    int member = -1;  ///< who waits for a round
    std::string out{};
  };
  using Connections = std::map<std::uint64_t, Connection>;

  void accept(Instant now);
  void watch_listener(bool on);
  void watch(std::uint64_t id, std::uint32_t events);
  void handle(Connections::iterator connection, Instant now);
  void answer_request(Connections::iterator connection, Instant now);
  void answer_elastic(Connections::iterator connection, Instant now);
  void hold(Connections::iterator connection, Waits what, int member);
  void reply(Connections::iterator connection, int status, std::string_view body = {});
  void send(Connections::iterator connection);
  void close(Connections::iterator connection);
  void close_late(Instant now);
  void end_round_when_complete();
  bool put(const StoreRequest& request);
  void give(const StoreRequest& put);
  void remove(const std::string& scope, const std::string& key);
  void clear();

  RendezvousOptions options_;
  std::optional<Members> members_;  ///< of elastic jobs
  std::vector<Slot> slots_;         ///< of others
  sys::Descriptor events_, listener_;
  int port_ = 0;
  bool listening_ = false;
  std::optional<Instant> accept_again_;
  Connections connections_;
  std::uint64_t next_id_ = 1;
  std::map<std::pair<std::string, std::string>, std::string> values_;  ///< by scope and key
  std::size_t bytes_ = 0;
  std::set<int> ports_;  ///< where workers of this round listen
};

}  // namespace lockstep::driver
