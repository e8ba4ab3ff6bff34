#include "base/failure.h"

#include <cstdlib>
#include <cxxabi.h>
#include <string>
#include <typeinfo>

namespace lockstep {
namespace {

std::string type_name(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : typeid(error).name();
  std::free(name);
  return text;
}

}  // namespace

Value to_value(const Failure& failure) {
  return {{"kind", to_string(failure.kind)}, {"rank", failure.rank},           {"node", failure.node},
          {"attempt", failure.attempt},      {"message", failure.message},     {"type", failure.type},
          {"traceback", failure.traceback},  {"log_lines", failure.log_lines}, {"time", failure.time}};
}

Failure failure_from_value(const Value& value) {
  Failure failure;
  failure.kind = failure_kind(value.value("kind", std::string()));
  failure.rank = value.value("rank", -1);
  failure.node = value.value("node", std::string());
  failure.attempt = value.value("attempt", 0);
  failure.message = value.value("message", std::string());
  failure.type = value.value("type", std::string());
  failure.traceback = value.value("traceback", std::string());
  failure.log_lines = value.value("log_lines", std::vector<std::string>());
  failure.time = value.value("time", 0.0);
  return failure;
}

Failure failure_of(const std::exception& error) {
  Failure failure;
  failure.kind = FailureKind::exception;
  failure.type = type_name(error);
  failure.message = error.what();
  if (const auto stack = failure.message.find("\nException raised from "); stack != std::string::npos) {
    failure.traceback = failure.message.substr(stack + 1);
    failure.message.resize(stack);
  }
  return failure;
}

}  // namespace lockstep
