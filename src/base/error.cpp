#include <array>
#include <lockstep/error.h>
#include <utility>

namespace lockstep {
namespace {

using Word = std::pair<FailureKind, std::string_view>;
constexpr std::array<Word, 10> kWords{{{FailureKind::exception, "exception"},
                                       {FailureKind::exit, "exit"},
                                       {FailureKind::signal, "signal"},
                                       {FailureKind::out_of_memory, "out_of_memory"},
                                       {FailureKind::heartbeat, "heartbeat"},
                                       {FailureKind::hang, "hang"},
                                       {FailureKind::node, "node"},
                                       {FailureKind::callback, "callback"},
                                       {FailureKind::storage, "storage"},
                                       {FailureKind::internal, "internal"}}};

}  // namespace

std::string_view to_string(FailureKind kind) {
  for (const auto& [value, word] : kWords)
    if (value == kind) return word;
  return "internal";
}

FailureKind failure_kind(std::string_view word) {
  for (const auto& [value, name] : kWords)
    if (name == word) return value;
  return FailureKind::internal;
}

}  // namespace lockstep
