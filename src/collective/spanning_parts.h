#pragma once

// Private to SpanningGroup.

#include <array>
#include <cstring>

#include "collective/bytes.h"
#include "collective/spanning_group.h"

namespace lockstep::collective {

/// Reductions up to this size travel in the greeting.
inline constexpr std::size_t kSmall = std::size_t{4} << 10;

/// What links carry, by channel.
enum Channel : int { kHello, kPartials, kResults, kData, kSizes, kLastWords };

/// What the first rank of a node tells those of the others at the start of a call.
struct SpanningGroup::Hello {
  Intent intent{};
  alignas(kCacheLine) std::array<std::byte, kSmall> payload{};
};

/// What the ranks of a node hear from their first: whether one of another node was called for something else.
struct SpanningGroup::Verdict {
  Intent intent{};
  std::int32_t different = -1;  ///< the rank that was
};

/// Said to the counterparts on other nodes before the connections are closed.
struct SpanningGroup::LastWords {
  FaultKind kind = FaultKind::none;
  std::int32_t culprit = -1;
};

struct SpanningGroup::Peer {
  LastWords words;
  Links::Pending heard;
};

}  // namespace lockstep::collective
