#pragma once

#include <tuple>
#include <utility>

/// LOCKSTEP_FIELDS(a, b); in a struct: its fields() returns the names of these fields with pointers to them, as a tuple
/// of pairs.
#define LOCKSTEP_FIELDS(...)                                                                                  \
  auto fields() { return std::make_tuple(__VA_OPT__(LOCKSTEP_SCAN_MORE(LOCKSTEP_EACH_FIELD(__VA_ARGS__)))); } \
  static_assert(true)  // takes the semicolon

// A macro is not expanded inside of itself, so each round handles one field and leaves the next one to another scan.
// There are 4 * 4 * 4 of them.
#define LOCKSTEP_EACH_FIELD(name, ...) \
  std::pair{#name, &name} __VA_OPT__(, LOCKSTEP_NEXT_FIELD LOCKSTEP_PARENTHESES(__VA_ARGS__))
#define LOCKSTEP_NEXT_FIELD() LOCKSTEP_EACH_FIELD
#define LOCKSTEP_PARENTHESES ()
#define LOCKSTEP_SCAN_MORE(...) LOCKSTEP_SCAN_4(LOCKSTEP_SCAN_4(LOCKSTEP_SCAN_4(LOCKSTEP_SCAN_4(__VA_ARGS__))))
#define LOCKSTEP_SCAN_4(...) LOCKSTEP_SCAN_3(LOCKSTEP_SCAN_3(LOCKSTEP_SCAN_3(LOCKSTEP_SCAN_3(__VA_ARGS__))))
#define LOCKSTEP_SCAN_3(...) LOCKSTEP_SCAN_2(LOCKSTEP_SCAN_2(LOCKSTEP_SCAN_2(LOCKSTEP_SCAN_2(__VA_ARGS__))))
#define LOCKSTEP_SCAN_2(...) __VA_ARGS__
