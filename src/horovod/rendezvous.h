#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "driver/service.h"
#include "horovod/http.h"
#include "horovod/members.h"
#include "horovod/sender.h"
#include "horovod/watched.h"
#include "sys/descriptor.h"

namespace lockstep::horovod {

constexpr const char* kRendezvous = "rendezvous";

struct RendezvousOptions {
  std::vector<std::string> hosts;  ///< by rank: its host for Horovod; empty: all on one host
  bool elastic = false;            ///< members that die are replaced (Members)
  int min_workers = 0;             ///< elastic: this many continue if a new one is late; 0: all wait for it
  Seconds go_on_after{0.5};        ///< how long they wait for it before that
  Seconds patience{15.0};          ///< see Members; longer than the workers' own timeout
  RequestLimits request;
  Seconds value_timeout{0.5};    ///< a GET waits this long for a value, then gets 404
  Seconds request_timeout{5.0};  ///< for a client to send its request and read the answer
  SenderOptions notice;
  std::size_t most_connections = 1024;  ///< but at most a quarter of the descriptors that the process may open
  std::size_t most_bytes = 64 << 20;    ///< of all keys and values
};

/// The key-value store through which Horovod's workers (0.20 to 0.28, Gloo) find each other: HTTP on this machine's
/// address in the attempt and a port that the system chooses, one connection per request.
///
///     PUT /scope/key       200
///     GET /scope/key       200 and the bytes, or 404: not there yet. A GET of a rank's addresses (the key is a number)
///                          waits for a while, because clients would repeat it in a loop
///     DELETE /scope/key    200. A rank deletes its keys when all ranks are connected. The last scope of a round is
///                          cross_N, or that of the process set if this Horovod has them
///
/// Elastic jobs have more requests. All but the last two are Horovod's own:
///
///     PUT /global/rank_N                the first request of a new worker; answered when the round is complete
///     GET /rank_and_size/host:local     a survivor asks for a new round; answered with its slot when that is complete
///     PUT /worker_addresses/host:local  where the worker receives notices (NoticeAddress)
///     GET /losses/N-secret              answered when a member is lost, with the ports of the broken exchange, so that
///                                       a rank can end its connections there; 404: there is no such rank
///     PUT /done/N-secret                the function of rank N has returned; it asks for no more rounds
///
/// In the last two, N is the run's rank; elsewhere ranks are in Horovod's numbering. A value that is put while a round
/// is open belongs to the broken round and is dropped. Every attempt has a new port and an empty store, so nothing of
/// an earlier attempt is served.
///
/// Horovod's protocol has no authentication, but workers choose the name of their host. In elastic jobs these names end
/// in the attempt's secret. A process that does not know it, such as another user's, cannot ask for a survivor's round,
/// set an address for notices, or use the scopes that are ours. The scopes in which ranks find each other have no place
/// for a secret.
///
/// Each worker that replaces another has its own port. On a shared port, its first request could be mistaken for that
/// of a survivor, which sends the same in a round that is already broken, or of a renumbered worker. With
/// `min_workers`, survivors may continue in a smaller world until the new workers arrive (Members). When all absent
/// workers are there, the server notifies the worker that is rank 0. It repeats the notice until somebody asks for a
/// round, because a notice that comes while that worker restarts is lost. It connects to loopback addresses only.
///
/// Never blocks and has no thread: `fd()` is readable when serve() has something to do. For one thread.
class Rendezvous : public driver::Service {
 public:
  /// Opens nothing yet.
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous() override;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  std::string name() const override { return kRendezvous; }
  /// Also refuses hosts and `min_workers` that are wrong.
  void check(int world_size) const override;

  /// Listens on a new port and closes all connections.
  void begin_attempt(int attempt, int world_size, const std::string& address) override;
  int port() const { return port_; }
  /// What a rank needs to take part: "address", "port" and its slot; in elastic jobs also the "secret".
  Value begin_of(int rank) const override;
  /// See Members. Only elastic jobs lose members.
  std::optional<std::string> lose(int rank, Instant now) override;

  int fd() const override { return events_.get(); }
  std::optional<Instant> deadline() const override;
  std::vector<driver::Event> serve(Instant now) override;

 private:
  enum class Waits { request, value, round, loss, to_be_sent };
  /// A listening socket.
  struct Door {
    Watched socket;
    int port = 0;
    int member = -1;  ///< the only member that knows it; -1: all that started with the attempt
  };
  struct Connection {
    Watched socket;
    RequestReader reader;
    int door = -1;  ///< the member whose port it uses; -1: the common one
    Waits waits = Waits::request;
    Instant deadline{};
    int member = -1;  ///< the member that waits
    std::string out{};
  };
  using Connections = std::map<std::uint64_t, Connection>;

  int open_door(int member);
  const Door* door_of(int member) const;
  void accept(const Door& door, Instant now);
  void watch_doors(bool on);
  void keep_waiting(const std::string& why);
  void handle(Connections::iterator connection, Instant now);
  void answer_request(Connections::iterator connection, Instant now);
  void answer_elastic(Connections::iterator connection, Instant now);
  void hold(Connections::iterator connection, Waits what, int member);
  void reply(Connections::iterator connection, int status, std::string_view body = {});
  void send(Connections::iterator connection);
  void close(Connections::iterator connection);
  void drop(Connections::iterator connection);
  void close_late(Instant now);
  bool concerns_members(const Connection& connection) const;
  std::string with_secret(std::string text) const { return std::move(text) + "-" + secret_; }
  std::optional<std::string_view> without_secret(std::string_view text) const;
  std::optional<std::string> place_in(std::string_view key) const;
  std::optional<int> rank_of_ours(std::string_view key) const;
  std::optional<int> newcomer(const Connection& connection) const;
  void keep_address(const Connection& connection);
  void note_connected(const StoreRequest& request);
  void end_round_when_complete(Instant now);
  bool put(const StoreRequest& request);
  void give(const StoreRequest& put);
  void remove(const std::string& scope, const std::string& key);
  void clear();

  std::vector<std::string> hosts_of(int world_size) const;
  MembersOptions members_options() const { return {options_.patience, options_.min_workers, options_.go_on_after}; }

  RendezvousOptions options_;
  std::optional<Members> members_;  ///< in elastic jobs
  std::vector<Slot> slots_;         ///< by rank; elastic jobs may renumber theirs
  sys::Descriptor events_;
  NoticeSender sender_;
  std::map<std::uint64_t, Door> doors_;
  std::string address_;  ///< of the attempt
  int port_ = 0;
  std::string secret_;  ///< of the attempt; in elastic jobs
  bool listening_ = false;
  std::optional<Instant> accept_again_;
  bool warned_ = false;  ///< the warning that clients wait was given
  Connections connections_;
  std::uint64_t next_id_ = 1;
  std::map<std::pair<std::string, std::string>, std::string> values_;  ///< by scope and key
  std::size_t bytes_ = 0;
  std::set<int> ports_;        ///< where workers of this round listen
  bool process_sets_ = false;  ///< this Horovod has process sets
  int attempt_ = -1;
  std::vector<driver::Event> news_;  ///< for the next serve()
};

}  // namespace lockstep::horovod
