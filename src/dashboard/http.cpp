#include "dashboard/http.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "base/utf8.h"

namespace lockstep::dashboard {
namespace {

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      unsigned code = 0;
      const char* begin = text.data() + i + 1;
      if (i + 2 >= text.size() || std::from_chars(begin, begin + 2, code, 16).ptr != begin + 2) return std::nullopt;
      c = static_cast<char>(code);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  if (valid_utf8(out) != out) return std::nullopt;
  return out;
}

}  // namespace

std::string Request::parameter(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::vector<std::string> Request::parameters(const std::string& name) const {
  std::vector<std::string> values;
  for (auto [at, end] = query.equal_range(name); at != end; ++at) values.push_back(at->second);
  return values;
}

std::optional<Target> parse_target(std::string_view target) {
  const auto mark = target.find('?');
  const auto path = decode(target.substr(0, mark), false);
  if (!path || !path->starts_with('/')) return std::nullopt;
  Target parsed{*path, {}};
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    const auto name = decode(pair.substr(0, equals), true);
    const auto value = decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1), true);
    if (!name || !value) return std::nullopt;
    if (!name->empty()) parsed.query.emplace(*name, *value);
  }
  return parsed;
}

Response error_response(int status, std::string_view text) {
  return {status, "application/json", to_json(Value{{"error", std::string(text)}}) + "\n"};
}

}  // namespace lockstep::dashboard
