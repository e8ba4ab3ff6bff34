#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace lockstep::driver {

/// One place of a job, as Horovod counts: ranks go host by host.
struct Slot {
  std::string host;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;  ///< among the hosts that have such a local rank
};

/// The slots of ranks that live on these hosts. Throws ConfigError when ranks of one host do not stand together, or a
/// name is empty, too long for a path, or holds what a path of the protocol cannot.
std::vector<Slot> slots_of(const std::vector<std::string>& hosts);

struct MembersOptions {
  Seconds patience{15.0};    ///< how long members that are expected may take to ask, once one of them has
  int fewest = 0;            ///< so many members go on without those that are late; 0: all wait for all
  Seconds go_on_after{0.5};  ///< how long they wait for fresh ones before they do, from when one of them asked
};

/// Who takes part in an elastic job. Workers find each other in rounds: a round begins with the attempt, with a death,
/// or when a worker asks for it; each member asks when it is ready, and when all have, they are told their slots and
/// the round is over. Pure: knows no socket, and the time is told.
///
/// A member that takes the place of a dead one is *fresh*: it has no state. The state comes from the rank that the job
/// calls 0, so that rank 0 is fresh only while all are: a survivor on its host changes places with it. The members'
/// numbers here are the run's ranks, which never change; their slots may.
///
/// A round that has ended leaves its members *joining*: they connect to each other, and a death in that time is the end
/// of all of them, for Gloo cannot give up half a mesh. Each says when it has done.
///
/// With `fewest`, a round may end without the fresh members that have not asked in time, or have died again: all of
/// them are *away* then, and the others are told slots of a smaller world, in the order that they had. A fresh member
/// is told its slot of the whole world when it is started, and cannot learn another, so that those who are away come
/// back together: when all of them ask, the others are due a notice, come to a round, and it is a whole one. Those who
/// are away can die and be replaced without anything to the others.
class Members {
 public:
  enum class Round { open, smaller, whole };

  /// Throws ConfigError when there are fewer members than the fewest, or the hosts are wrong.
  Members(const std::vector<std::string>& hosts, MembersOptions options);

  /// All are fresh, and a round begins.
  void begin();
  /// The member's slot in the whole world.
  const Slot& slot(int member) const;
  /// The slot that it was told when a round ended last; a fresh one was told nothing yet.
  const Slot& told(int member) const { return at(member).told; }
  /// Who was told the slot "host:local_rank", and so calls itself that; nobody when it is free.
  std::optional<int> called(std::string_view place) const;
  /// The fresh member of this round whose slot has that rank, when there is one that has not asked yet.
  std::optional<int> newcomer(int rank) const;
  bool in_round() const { return in_round_; }
  bool is_fresh(int member) const { return at(member).fresh; }
  bool is_away(int member) const { return at(member).away; }

  void ask(int member, Instant now);
  /// It does not wait any more.
  void withdraw(int member);
  /// The member whose slot has this local and this cross rank has connected to all others.
  void connected(int local_rank, int cross_rank);
  /// Whether anybody but `member` is joining.
  bool are_joining_beside(int member) const;
  /// It died, and another takes its place. False: no survivor could be rank 0, and the members must all begin anew.
  bool lose(int member, Instant now);
  /// Its function has returned: it comes to no other round.
  void finish(int member) { at(member).done = true; }

  /// Whether the round can end, and how.
  Round round(Instant now) const;
  /// All that take part have been told. Returns who was away and is not any more, or is away from now on.
  std::vector<int> end_round(Round how);

  /// Who is to hear that those who are away are ready: the member that the job calls rank 0. Nobody when there is
  /// nothing to hear, or those who are not away come to no round any more.
  std::optional<int> due_notice() const;
  /// Members that are away when all others have finished, each named once: they would wait for ever.
  std::vector<int> take_needless();
  /// Members that are overdue, each named once: they sit in an exchange with the dead, or are busy without end. Nobody
  /// is while none has died or returned and no notice is due: one that asks all by itself has to wait until the others
  /// need it.
  std::vector<int> take_stuck(Instant now);
  /// When round() or take_stuck() may say something else though nobody speaks.
  std::optional<Instant> deadline() const;

 private:
  struct Member {
    int slot = 0;
    Slot told{};
    bool fresh = true;
    bool away = false;
    bool asks = false;
    bool joining = false;
    bool named = false;  ///< as stuck, or needless
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
  std::optional<Instant> first_ask_;  ///< of a member that is not fresh, or when such ones came to be expected
  bool in_round_ = false;
};

}  // namespace lockstep::driver
