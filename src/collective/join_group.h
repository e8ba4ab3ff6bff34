#pragma once

#include <functional>
#include <memory>

#include "collective/communicator.h"
#include "collective/links.h"
#include "collective/nodes.h"

namespace lockstep::collective {

/// Connects this rank to those of other nodes; all ranks of the group call it at the same time. Throws if it cannot.
using MakeLinks = std::function<std::unique_ptr<Links>()>;

/// Makes the group once all ranks have called it: a Communicator if they are on one node, otherwise a SpanningGroup.
/// `store` is needed only during the call. Throws CannotShareMemory on all ranks if ranks of one node cannot share
/// memory, so that all may use something else.
std::unique_ptr<Group> join_group(KeyValueStore& store, int rank, int world, const CommunicatorOptions& options,
                                  const Place& place, const MakeLinks& make_links);

}  // namespace lockstep::collective
