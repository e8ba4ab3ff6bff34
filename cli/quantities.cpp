#include "quantities.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "base/text.h"
#include "commands.h"

namespace lockstep::cli {
namespace {

struct Quantity {
  double number = 0;
  std::string unit;  ///< in lower case
};

std::optional<Quantity> parse(const std::string& text) {
  Quantity quantity;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, quantity.number, std::chars_format::fixed);
  if (parsed.ec != std::errc() || !std::isfinite(quantity.number) || std::signbit(quantity.number)) return std::nullopt;
  for (const char* c = parsed.ptr; c != end; ++c)
    if (*c != ' ') quantity.unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  return quantity;
}

}  // namespace

double parse_duration(const std::string& text, const std::string& option, const std::string& unit) {
  static const std::map<std::string, double> kUnits{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 7 * 86400}};
  const auto quantity = parse(text);
  const auto found = quantity ? kUnits.find(quantity->unit.empty() ? unit : quantity->unit) : kUnits.end();
  if (found == kUnits.end())
    throw UsageError("[" + option + "] " + in_quotes(text) + " is not a duration; write 90s, 30m, 12h, 7d or 2w");
  return quantity->number * found->second;
}

double parse_size(const std::string& text, const std::string& option) {
  static const std::string kPrefixes = "kmgt";
  const auto quantity = parse(text);
  std::string unit = quantity ? quantity->unit : "?";
  if (unit.ends_with('b')) unit.pop_back();
  double base = 1000;
  if (unit.size() == 2 && unit.ends_with('i')) {
    base = 1024;
    unit.pop_back();
  }
  const std::size_t power = unit.empty() ? 0 : kPrefixes.find(unit) + 1;
  if (unit.size() > 1 || (!unit.empty() && power == 0))
    throw UsageError("[" + option + "] " + in_quotes(text) + " is not a size; write 500MB, 10GB, 1.5TB or 10GiB");
  return quantity->number * std::pow(base, static_cast<double>(power));
}

std::string age_text(double seconds) {
  constexpr double kDay = 86400;
  if (seconds < kDay) return human_duration(seconds);
  char text[32];
  std::snprintf(text, sizeof text, "%.0fd %02.0fh", std::floor(seconds / kDay),
                std::floor(std::fmod(seconds, kDay) / 3600));
  return text;
}

}  // namespace lockstep::cli
