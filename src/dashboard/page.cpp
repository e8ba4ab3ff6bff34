#include "dashboard/page.h"

#include "dashboard/certificate.h"

namespace lockstep::dashboard {
namespace {

/// The contents of the first element of this kind.
std::string_view element(std::string_view name) {
  const std::string_view page = kPage;
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  const auto begin = page.find(open);
  if (begin == std::string_view::npos) return {};
  const auto end = page.find(close, begin);
  return page.substr(begin + open.size(), end - begin - open.size());
}

}  // namespace

std::string page_policy() {
  static const std::string policy =
      "default-src 'none'; script-src 'sha256-" + sha256_base64(element("script")) + "'; style-src 'sha256-" +
      sha256_base64(element("style")) +
      "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'";
  return policy;
}

}  // namespace lockstep::dashboard
