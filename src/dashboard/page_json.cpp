#include "dashboard/page_json.h"

#include <cmath>

#include "base/json.h"

namespace lockstep::dashboard {
namespace {

void name_odd_numbers(Value& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number)) value = "NaN";
    if (std::isinf(number)) value = number > 0 ? "Infinity" : "-Infinity";
  } else if (value.is_structured()) {
    for (auto& item : value) name_odd_numbers(item);
  }
}

}  // namespace

std::string page_json(Value value) {
  name_odd_numbers(value);
  return to_json(value);
}

}  // namespace lockstep::dashboard
