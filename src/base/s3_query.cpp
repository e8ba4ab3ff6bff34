#include "base/s3_query.h"

#include <cstdlib>
#include <initializer_list>

namespace lockstep {
namespace {

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

}  // namespace

std::string s3_query(const std::string& query, const std::string& endpoint, const std::string& region) {
  const auto has = [&](const std::string& key) { return ("&" + query).find("&" + key + "=") != std::string::npos; };
  std::string full = query;
  const auto add = [&](const std::string& key, const std::string& value) {
    if (!has(key)) full += (full.empty() ? "" : "&") + key + "=" + value;
  };
  if (!endpoint.empty() && !has("endpoint_override")) {
    const auto scheme = endpoint.find("://");
    std::string host = scheme == std::string::npos ? endpoint : endpoint.substr(scheme + 3);
    while (host.ends_with('/')) host.pop_back();
    add("endpoint_override", host);
    if (scheme != std::string::npos) add("scheme", endpoint.substr(0, scheme));
  }
  // A server of one's own has no region to ask for.
  if (!region.empty())
    add("region", region);
  else if (full.find("endpoint_override=") != std::string::npos)
    add("region", "us-east-1");
  return full;
}

std::string s3_query_of_environment(const std::string& query) {
  return s3_query(query, first_set({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}),
                  first_set({"AWS_REGION", "AWS_DEFAULT_REGION"}));
}

}  // namespace lockstep
