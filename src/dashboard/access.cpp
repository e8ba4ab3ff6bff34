#include "dashboard/access.h"

#include <algorithm>
#include <cctype>

namespace lockstep::dashboard {
namespace {

bool same_text(std::string_view given, std::string_view wanted) {
  unsigned char difference = given.size() == wanted.size() ? 0 : 1;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    difference |= static_cast<unsigned char>(wanted[i] ^ (i < given.size() ? given[i] : '\0'));
  return difference == 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// Whether `authority`, "host" or "host:port", names one of our hosts. A tunnel may have another port than we have.
bool is_ours(const Access& access, std::string_view authority) {
  const auto bracket = authority.find(']');
  const auto colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view port = colon == std::string_view::npos ? "" : authority.substr(colon + 1);
  return port.find_first_not_of("0123456789") == std::string_view::npos &&
         std::ranges::find(access.hosts, authority.substr(0, colon)) != access.hosts.end();
}

}  // namespace

std::optional<Response> Access::refusal(const Request& request) const {
  if (request.method != "GET" && request.method != "HEAD") {
    Response response = error_response(405, "the dashboard only reads: use GET");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  const std::string host = lower(request.host);
  if (!is_ours(*this, host))
    return error_response(421, "the Host header names another address; use the URL that `lockstep dashboard` printed");
  if (!request.origin.empty() && lower(request.origin) != (tls ? "https://" : "http://") + host)
    return error_response(403, "a page of another origin asks; open the dashboard itself");
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view header = request.authorization;
  const std::string_view bearer = header.starts_with(kBearer) ? header.substr(kBearer.size()) : "";
  if (token.empty() || (!same_text(bearer, token) && !same_text(request.parameter("token"), token))) {
    Response response =
        error_response(401, "the token is missing or wrong; use the URL that `lockstep dashboard` printed");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  return std::nullopt;
}

}  // namespace lockstep::dashboard
