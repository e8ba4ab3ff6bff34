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
/// name is empty or holds what the protocol uses itself.
std::vector<Slot> slots_of(const std::vector<std::string>& hosts);

/// Who takes part in an elastic job. Workers find each other in rounds: a round begins with the attempt, with a death,
/// or when a worker asks for it; each member asks when it is ready, and when all have, they are told their slots and
/// the round is over. Pure: knows no socket, and the time is told.
///
/// A member that takes the place of a dead one is *fresh*: it has no state. The state comes from the rank that the job
/// calls 0, so that rank 0 is fresh only while all are: a survivor on its host changes places with it. The members'
/// numbers here are the run's ranks, which never change; their slots may.
class Members {
 public:
  /// `patience`: how long members that are not fresh may take to ask, once one of them has.
  Members(const std::vector<std::string>& hosts, Seconds patience);

  /// All are fresh, and a round begins.
  void begin();
  /// The member's slot in this round.
  const Slot& slot(int member) const;
  /// Who had the slot "host:local_rank" before this round, and so calls itself that; nobody when it is free.
  std::optional<int> called(std::string_view place) const;
  /// The fresh member of this round whose slot has that rank, when there is one that has not asked yet.
  std::optional<int> newcomer(int rank) const;
  bool in_round() const { return in_round_; }

  void ask(int member, Instant now);
  /// It does not wait any more.
  void withdraw(int member);
  /// It died, and another takes its place. False: no survivor could be rank 0, and the members must all begin anew.
  bool lose(int member);

  bool all_ask() const;
  /// All have been told.
  void end_round();

  /// Members that are overdue, each named once: they sit in an exchange with the dead, or are busy without end.
  std::vector<int> take_stuck(Instant now);
  std::optional<Instant> deadline() const;

 private:
  struct Member {
    int slot = 0;
    int slot_before = 0;
    bool fresh = true;
    bool asks = false;
    bool named = false;  ///< as stuck
  };
  bool is_overdue(const Member& member) const { return !member.fresh && !member.asks && !member.named; }

  std::vector<Slot> slots_;
  std::vector<Member> members_;
  Seconds patience_;
  std::optional<Instant> first_ask_;  ///< of a member that is not fresh
  bool in_round_ = false;
};

}  // namespace lockstep::driver
