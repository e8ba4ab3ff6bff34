#include "collective/intent.h"

#include <lockstep/error.h>

#include <array>

namespace lockstep::collective {
namespace {

constexpr std::array<std::string_view, 9> kKindNames{
    "barrier", "all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all"};
constexpr std::uint8_t kNoOp = 0xff;

}  // namespace

Intent intent_of(CallKind kind, std::size_t bytes, int root) {
  return {.count = bytes, .root = root, .kind = kind, .op = kNoOp};
}

Intent intent_of(CallKind kind, std::size_t count, DType dtype, ReduceOp op, int root) {
  if (!supported(dtype, op))
    throw ConfigError("[collective] " + std::string(to_string(op)) + " of " + std::string(to_string(dtype)) +
                      " elements is not defined; use another operation or dtype");
  return {.count = count,
          .root = root,
          .kind = kind,
          .dtype = static_cast<std::uint8_t>(dtype),
          .op = static_cast<std::uint8_t>(op)};
}

std::string_view to_string(CallKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

std::string described(const Intent& intent) {
  std::string text = std::string(to_string(intent.kind)) + " of " + std::to_string(intent.count);
  if (intent.op != kNoOp)
    text += " " + std::string(to_string(static_cast<DType>(intent.dtype))) + " by " +
            std::string(to_string(static_cast<ReduceOp>(intent.op)));
  else
    text += " bytes";
  return intent.root < 0 ? text : text + " with root " + std::to_string(intent.root);
}

void throw_different(std::uint64_t call, int me, const Intent& mine, int other, const Intent& theirs) {
  throw ConfigError("[collective] call " + std::to_string(call) + " of rank " + std::to_string(me) + " is " +
                    described(mine) + ", that of rank " + std::to_string(other) + " is " + described(theirs) +
                    "; every rank must make the same calls");
}

}  // namespace lockstep::collective
