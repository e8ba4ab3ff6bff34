#include "metrics/metric_texts.h"

#include <lockstep/array.h>

#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "metrics/autofill.h"

namespace lockstep::metrics {
namespace {

constexpr std::size_t kLongestText = 24;

/// Empty if it is too long for a line or not a plain value.
std::string value_text(const Value& value) {
  if (value.is_number_float()) return short_number(value.get<double>());
  if (value.is_number() || value.is_boolean()) return to_json(value);
  if (value.is_string() && value.get_ref<const std::string&>().size() <= kLongestText)
    return printable(value.get_ref<const std::string&>());
  return {};
}

struct Texts {
  Keys keys;
  std::size_t most;
  std::vector<std::string> found{};

  void add(const Value& dict, const std::string& prefix) {
    for (const auto& [key, value] : dict.get_ref<const Value::object_t&>()) {
      if (found.size() >= most) return;  // a report may have many
      if (prefix.empty() && keys == Keys::reported && is_autofilled(key)) continue;
      if (is_summary(value)) continue;  // skipped, like arrays
      if (value.is_object())
        add(value, prefix + key + "/");
      else if (const std::string text = value_text(value); !text.empty())
        found.push_back(printable(prefix + key) + "=" + text);
    }
  }
};

}  // namespace

std::vector<std::string> metric_texts(const Value& metrics, Keys keys, std::size_t most) {
  Texts texts{keys, most};
  if (metrics.is_object()) texts.add(metrics, "");
  return std::move(texts.found);
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

}  // namespace lockstep::metrics
