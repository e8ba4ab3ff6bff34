#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::dashboard {

/// One request of a browser. Decoded and checked: `path` begins with `/` and has neither NUL nor invalid UTF-8.
struct Request {
  std::string method;
  std::string path;
  std::multimap<std::string, std::string> query;
  std::string host, origin, authorization;  ///< headers; empty if missing

  /// The first value of a parameter; empty if there is none.
  std::string parameter(const std::string& name) const;
  std::vector<std::string> parameters(const std::string& name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< further ones
};

/// Answers a request; may block. Several threads call it. What it throws becomes an answer with status 404 (missing
/// files), 400 (ConfigError) or 500.
using Handler = std::function<Response(const Request& request)>;

/// Splits and decodes the target of a request, `/a%20b?c=d`; `+` in the query is a space. Nothing if it is malformed: a
/// wrong escape, a NUL, invalid UTF-8, or no leading `/`.
struct Target {
  std::string path;
  std::multimap<std::string, std::string> query;
};
std::optional<Target> parse_target(std::string_view target);

/// {"error": text} with this status.
Response error_response(int status, std::string_view text);

}  // namespace lockstep::dashboard
