#pragma once

#include <arrow/result.h>
#include <arrow/status.h>

#include <lockstep/error.h>
#include <string>
#include <utility>

/// Arrow reports errors as values; here they become exceptions that name the place.
namespace lockstep::data {

/// `where` is a file and a place in it.
[[noreturn]] inline void fail(const std::string& where, const std::string& what) {
  throw StorageError("[data] " + where + ": " + what);
}

inline void check(const arrow::Status& status, const std::string& where) {
  if (!status.ok()) fail(where, status.message());
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& where) {
  check(result.status(), where);
  return std::move(result).ValueUnsafe();
}

}  // namespace lockstep::data
