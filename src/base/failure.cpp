#include "base/failure.h"

namespace lockstep {

Value to_value(const Failure& failure, bool with_pickled) {
  Value value{{"kind", to_string(failure.kind)}, {"rank", failure.rank},          {"node", failure.node},
              {"attempt", failure.attempt},      {"message", failure.message},    {"type", failure.type},
              {"traceback", failure.traceback},  {"log_lines", failure.log_lines}};
  if (with_pickled) value["pickled"] = Value::binary(failure.pickled);
  return value;
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
  if (auto found = value.find("pickled"); found != value.end() && found->is_binary())
    failure.pickled = found->get_binary();
  return failure;
}

}  // namespace lockstep
