#pragma once

#include <string>
#include <vector>

#include "dashboard/http.h"

namespace lockstep::dashboard {

/// Who may use the server. A pure check of each request, before anything else looks at it.
struct Access {
  std::string token;               ///< of the URL; never empty
  std::vector<std::string> hosts;  ///< what the Host header may name, in lower case; the port does not matter
  bool tls = false;

  /// Nothing if the request is allowed, otherwise what to answer:
  /// - 405 unless it only reads;
  /// - 421 if Host names another address: a page elsewhere whose name was made to lead here (DNS rebinding);
  /// - 403 if Origin is not this Host: another page asks;
  /// - 401 without the token, in `?token=` or in `Authorization: Bearer`. It takes equally long for every wrong token.
  std::optional<Response> refusal(const Request& request) const;
};

}  // namespace lockstep::dashboard
