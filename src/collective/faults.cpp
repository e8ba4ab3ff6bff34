#include "collective/faults.h"

#include <lockstep/error.h>
#include <unistd.h>

#include "base/text.h"

namespace lockstep::collective {
namespace {

/// "rank 1 (pid 4711)".
std::string named(Region& region, int rank) {
  return "rank " + std::to_string(region.number(rank)) + " (pid " + std::to_string(region.rank(rank).pid.load()) + ")";
}

std::string named(Region& region, const std::vector<int>& ranks) {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const int rank : ranks) names.push_back(named(region, rank));
  return joined(names, ", ");
}

std::string opening(const Region& region, int me, const Occasion& occasion) {
  return "[collective] rank " + std::to_string(region.number(me)) + ", " + std::string(occasion.what) + " " +
         std::to_string(occasion.number) + ": ";
}

}  // namespace

void check_member(const Region& region, int me) {
  if (!region.is_here())
    throw ConfigError("[collective] rank " + std::to_string(region.number(me)) + " is process " +
                      std::to_string(region.owner_pid()) + "; its child " + std::to_string(::getpid()) +
                      " cannot use the group, and must join one of its own");
}

void throw_fault(Region& region, int me, const Fault& fault, const Occasion& occasion) {
  const std::string start = opening(region, me, occasion);
  const std::string culprit =
      fault.kind >= FaultKind::lost ? region.outside(fault.culprit) : named(region, fault.culprit);
  switch (fault.kind) {
    case FaultKind::timed_out:
      throw TimeoutError(start + named(region, fault.reporter) + " gave up waiting for " +
                         (fault.culprit == me ? "this rank" : culprit) +
                         "; see what kept it busy, or give the group a longer timeout");
    case FaultKind::aborted:
      throw EngineError(start + culprit + " aborted the group; see its own error");
    case FaultKind::lost:
      throw EngineError(start + culprit +
                        " is lost: it died, or its connection was closed by peer or cut; see its log and its node");
    case FaultKind::gone:
      throw EngineError(start + culprit + " left the group, and is needed here; every rank must make the same calls");
    case FaultKind::silent:
      throw TimeoutError(start + "timed out: " + named(region, fault.reporter) + " heard nothing from " + culprit +
                         " for " + human_duration(Seconds(occasion.timeout).count()) +
                         "; see what keeps it busy or cuts it off, or give the group a longer timeout");
    case FaultKind::dropped:
      throw EngineError(start + culprit + " aborted the group; see its own error");
    case FaultKind::died:
    case FaultKind::none:
      break;
  }
  throw EngineError(start + culprit + " died; see its log, then make a new group of the ranks that are left");
}

void throw_left(Region& region, int me, const std::vector<int>& ranks, const Occasion& occasion) {
  throw EngineError(opening(region, me, occasion) + named(region, ranks) +
                    " left the group, and is needed here; every rank must make the same calls");
}

void throw_silent(Region& region, int me, const std::vector<int>& ranks, const Occasion& occasion) {
  region.set_fault({FaultKind::timed_out, ranks.empty() ? me : ranks.front(), me});
  throw TimeoutError(opening(region, me, occasion) + "timed out: nothing from " + named(region, ranks) + " for " +
                     human_duration(Seconds(occasion.timeout).count()) +
                     "; see what keeps it busy, or give the group a longer timeout");
}

}  // namespace lockstep::collective
