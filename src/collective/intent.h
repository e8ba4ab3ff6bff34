#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collective/dtype.h"

namespace lockstep::collective {

/// The collectives.
enum class CallKind : std::uint8_t {
  barrier,
  all_reduce,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather,
  gather,
  scatter,
  all_to_all,
};

/// What a rank does next. Ranks compare their intents before any data is used.
struct Intent {
  std::uint64_t count = 0;  ///< elements or bytes, depending on `kind`
  std::int32_t root = -1;
  CallKind kind = CallKind::barrier;
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint8_t unused = 0;
  bool operator==(const Intent&) const = default;
};

/// Of a call that moves `bytes`.
Intent intent_of(CallKind kind, std::size_t bytes, int root = -1);
/// Of a call that combines `count` elements. Throws ConfigError if that is not defined.
Intent intent_of(CallKind kind, std::size_t count, DType dtype, ReduceOp op, int root = -1);

std::string_view to_string(CallKind kind);
/// "all_reduce of 7 float32 by sum".
std::string described(const Intent& intent);

/// Ranks made different calls. Throws ConfigError, which shows both.
[[noreturn]] void throw_different(std::uint64_t call, int me, const Intent& mine, int other, const Intent& theirs);

}  // namespace lockstep::collective
