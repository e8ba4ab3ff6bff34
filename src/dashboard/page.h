#pragma once

#include <string>
#include <string_view>

namespace lockstep::dashboard {

/// The page: one HTML document with its scripts and styles in it. It loads nothing else. page/assets.cmake writes it.
extern const std::string_view kPage;
/// Its Content-Security-Policy: only the scripts and styles in it, named by their hashes, and data from this server.
std::string page_policy();

}  // namespace lockstep::dashboard
