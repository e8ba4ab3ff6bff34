#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace lockstep::horovod {

/// One slot of a job, in Horovod's numbering: ranks are numbered host by host.
struct Slot {
  std::string host;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;  ///< among the hosts that have this local rank
};

/// The slots of ranks on these hosts. Throws ConfigError if ranks of one host are not adjacent, or a name is empty, too
/// long, or has characters that a path of the protocol cannot hold.
std::vector<Slot> slots_of(const std::vector<std::string>& hosts);

struct MembersOptions {
  Seconds patience{15.0};    ///< how long expected members may take to ask, after the first one has
  int fewest = 0;            ///< at least this many members continue without late ones; 0: all wait for all
  Seconds go_on_after{0.5};  ///< how long they wait for fresh ones before that, from the first request
};

/// The members of an elastic job. Workers find each other in rounds. A round begins with the attempt, with a death, or
/// when a worker asks for one. Each member asks when it is ready; when all have asked, they get their slots and the
/// round ends. Pure: uses no socket, and the time is an argument.
///
/// A member that replaces a dead one is *fresh*: it has no state. The state comes from the job's rank 0, which
/// therefore must not be fresh unless all are: a survivor on its host swaps slots with it. Members are numbered by the
/// run's ranks, which never change; their slots may.
///
/// After a round its members are *joining*: they connect to each other. A death during that time ends all of them,
/// because Gloo cannot abandon a partial mesh. Each member says when it is connected.
///
/// With `fewest`, a round may end without the fresh members that have not asked in time or have died again. All of
/// these are then *away*, and the others get slots of a smaller world, in the same order. A replacement learns its slot
/// in the full world only at start. So absent members rejoin together: once all have asked, rank 0 is notified, every
/// member re-enters a round, and it ends with the full world. Absent members can die and be replaced without affecting
/// the others.
class Members {
 public:
  enum class Round { open, smaller, whole };

  /// Throws ConfigError if there are fewer members than `fewest`, or the hosts are wrong.
  Members(const std::vector<std::string>& hosts, MembersOptions options);

  /// Makes all members fresh and begins a round.
  void begin();
  /// The member's slot in the full world.
  const Slot& slot(int member) const;
  /// The slot that it got at the end of the last round; a fresh member has none yet.
  const Slot& told(int member) const { return at(member).told; }
  /// The member with the slot "host:local_rank", or nobody if it is free.
  std::optional<int> called(std::string_view place) const;
  /// The fresh member of this round whose slot has that rank and that has not asked yet, if any.
  std::optional<int> newcomer(int rank) const;
  bool in_round() const { return in_round_; }
  bool is_fresh(int member) const { return at(member).fresh; }
  bool is_away(int member) const { return at(member).away; }

  void ask(int member, Instant now);
  /// The member no longer waits for the round.
  void withdraw(int member);
  /// The member whose slot has this local and cross rank is connected to all others.
  void connected(int local_rank, int cross_rank);
  /// Whether another member than `member` is joining.
  bool are_joining_beside(int member) const;
  /// The member died, and another takes its place. Returns false if no survivor can become rank 0, so that all members
  /// must restart.
  bool lose(int member, Instant now);
  /// The member's function has returned; it takes part in no more rounds.
  void finish(int member) { at(member).done = true; }

  /// Whether the round can end, and how.
  Round round(Instant now) const;
  /// Ends the round. Returns the members that are no longer fresh (a whole round) or that are away from now on (a
  /// smaller one).
  std::vector<int> end_round(Round how);

  /// The member to notify that the absent members are ready: the job's rank 0. Nobody if there is nothing to notify, or
  /// the present members take part in no more rounds.
  std::optional<int> due_notice() const;
  /// Members that are away when all others have finished, each returned once: they would wait forever.
  std::vector<int> take_needless();
  /// Members that are overdue, each returned once: they are stuck in a collective with a dead member, or busy forever.
  /// None is overdue if no member has died or returned and no notice is due: a member that asks by itself must wait for
  /// the others.
  std::vector<int> take_stuck(Instant now);
  /// When round() or take_stuck() may change even without a request.
  std::optional<Instant> deadline() const;

 private:
  struct Member {
    int slot = 0;
    Slot told{};
    bool fresh = true;
    bool away = false;
    bool asks = false;
    bool joining = false;
    bool named = false;  ///< was returned as stuck or needless
    bool done = false;
  };
  Member& at(int member) { return members_.at(static_cast<std::size_t>(member)); }
  const Member& at(int member) const { return members_.at(static_cast<std::size_t>(member)); }
  bool is_overdue(const Member& member) const { return !member.fresh && !member.asks && !member.named; }
  bool are_expected() const;
  std::optional<Instant> stuck_at() const;
  std::optional<Instant> smaller_at() const;
  std::vector<int> end_whole_round();
  std::vector<int> end_smaller_round();

  std::vector<Slot> slots_;
  std::vector<Member> members_;
  MembersOptions options_;
  std::optional<Instant>
      first_ask_;  ///< when a member that is not fresh asked first, or when such members began to be expected
  bool in_round_ = false;
};

}  // namespace lockstep::horovod
