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
#include "driver/rendezvous_http.h"
#include "driver/rendezvous_members.h"
#include "driver/rendezvous_sender.h"
#include "driver/watched.h"
#include "sys/descriptor.h"

namespace lockstep::driver {

struct RendezvousOptions {
  std::vector<std::string> hosts;  ///< by rank: where it is taken to live
  bool elastic = false;            ///< members that die are replaced (Members)
  int min_workers = 0;             ///< of elastic jobs: so many go on when a new one is late; 0: all wait for it
  Seconds go_on_after{0.5};        ///< how long they wait for it first
  Seconds patience{15.0};          ///< see Members; longer than the workers' own timeout
  RequestLimits request;
  Seconds value_timeout{0.5};    ///< how long a value is waited for
  Seconds request_timeout{5.0};  ///< for a client to send its request, and to take the answer
  SenderOptions notice;
  std::size_t most_connections = 1024;  ///< and no more than a quarter of what the process may have open
  std::size_t most_bytes = 64 << 20;    ///< of all keys and values
};

/// What a run has to know of its elastic job. Numbers are the run's ranks.
struct RendezvousNews {
  std::vector<int> stuck;     ///< Members::take_stuck
  std::vector<int> left;      ///< the others go on without them
  std::vector<int> joined;    ///< they had left, and take part again
  std::vector<int> needless;  ///< Members::take_needless
};

/// The key-value store through which Horovod's workers (0.20 to 0.28, Gloo) find each other: HTTP on a port of
/// 127.0.0.1 that the system chooses, one connection a request.
///
///     PUT /scope/key       200
///     GET /scope/key       200 and the bytes, or 404: not there yet. A rank's addresses (the key is a number) are
///                          waited for a while: clients would ask again and again
///     DELETE /scope/key    200; a rank says so when all are connected, and then nobody needs its keys. The last scope
///                          of a round is cross_N, or that of the process set where Horovod has those
///
/// Elastic jobs have more. All but the last two are Horovod's own:
///
///     PUT /global/rank_N                the first thing that a new worker says. It is held until the round is complete
///     GET /rank_and_size/host:local     a survivor asks for a new round: held likewise; the answer is its slot
///     PUT /worker_addresses/host:local  where the worker hears notices (NoticeAddress)
///     GET /losses/N-secret              held until a member is lost. The answer: the ports of the exchange that is
///                                       broken now, so that a rank can end what it still waits for there; 404: there
///                                       is no such rank
///     PUT /done/N-secret                the function of rank N has returned: it asks for no other round
///
/// In the last two N is the run's rank, else ranks are those that Horovod was told. What is put while a round is open
/// belongs to the one that broke, and is dropped. Every attempt has a new port and an empty store, so that nothing of a
/// dead one is served.
///
/// Horovod's protocol knows no authentication, but workers choose what they call their host. In elastic jobs they are
/// told names that end in the attempt's secret: whoever does not know it, another user's process perhaps, can neither
/// ask for a round of survivors nor say where notices go, nor hear or say anything in the scopes that are ours. The
/// scopes in which ranks find each other have no place for a secret.
///
/// Each worker that replaces another speaks through a port of its own: its first words could else be those of a
/// survivor, which says the same in a round that has broken already, or of one that was renumbered. With `min_workers`,
/// survivors may be told to go on in a smaller world while a new worker is on its way (Members). When all who are away
/// are there, the server tells the worker that is rank 0, again and again until somebody asks for a round: a notice
/// that comes while that one begins anew is lost. It connects to addresses of the loopback only.
///
/// Never waits, has no thread: `fd()` is readable when serve() has something to do. For one thread.
class Rendezvous {
 public:
  static constexpr const char* kAddress = "127.0.0.1";

  /// Throws ConfigError when the hosts are wrong, or `min_workers` is.
  static void check(const RendezvousOptions& options);
  /// Opens nothing yet. Throws as check() does.
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Listens anew; who was connected is not any more. Throws EngineError.
  void begin_attempt();
  int port() const { return port_; }
  int fd() const { return events_.get(); }
  /// Does what can be done now, and tells what came of it.
  RendezvousNews serve(Instant now);
  /// When serve() is due though nobody speaks.
  std::optional<Instant> deadline() const;

  /// What a rank needs to take part: "address", "port" and its slot; of elastic jobs also the "secret".
  Value place(int rank) const;
  /// A member died, and another takes its place; see Members. Returns why that cannot be, when all must begin anew.
  /// Throws EngineError when the other one cannot get a port.
  std::optional<std::string> lose(int rank, Instant now);
  /// Whether it replaces one that died, or begins the attempt, and has been in no round.
  bool is_fresh(int rank) const { return members_ && members_->is_fresh(rank); }
  /// Whether the others go on without it.
  bool is_away(int rank) const { return members_ && members_->is_away(rank); }

 private:
  enum class Waits { request, value, round, loss, to_be_sent };
  /// Where we listen.
  struct Door {
    Watched socket;
    int port = 0;
    int member = -1;  ///< who alone was told of it; -1: all that came with the attempt
  };
  struct Connection {
    Watched socket;
    RequestReader reader;
    int door = -1;  ///< the member whose door it came through
    Waits waits = Waits::request;
    Instant deadline{};
    int member = -1;  ///< who waits for a round
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

  RendezvousOptions options_;
  std::optional<Members> members_;  ///< of elastic jobs
  std::vector<Slot> slots_;         ///< of others
  sys::Descriptor events_;
  NoticeSender sender_;
  std::map<std::uint64_t, Door> doors_;
  int port_ = 0;
  std::string secret_;  ///< of the attempt; of elastic jobs
  bool listening_ = false;
  std::optional<Instant> accept_again_;
  bool warned_ = false;  ///< that clients wait
  Connections connections_;
  std::uint64_t next_id_ = 1;
  std::map<std::pair<std::string, std::string>, std::string> values_;  ///< by scope and key
  std::size_t bytes_ = 0;
  std::set<int> ports_;        ///< where workers of this round listen
  bool process_sets_ = false;  ///< this Horovod has them
  RendezvousNews news_;        ///< not told yet
};

}  // namespace lockstep::driver
