#include "tune/shown_value.h"

namespace lockstep::tune {

Value shown(const Value& value) {
  if (value.is_array()) {
    Value list = Value::array();
    for (const Value& part : value) list.push_back(shown(part));
    return list;
  }
  if (!value.is_object()) return value;
  if (const auto text = value.find("$text"); text != value.end()) return *text;
  if (const auto tuple = value.find("$tuple"); tuple != value.end()) return shown(*tuple);
  Value dict = Value::object();
  for (const auto& [key, part] : value.items()) dict[key] = shown(part);
  return dict;
}

}  // namespace lockstep::tune
