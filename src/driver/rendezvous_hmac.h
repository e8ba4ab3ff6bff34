#pragma once

#include <string>
#include <string_view>

namespace lockstep::driver {

/// SHA-256 (FIPS 180-4) and its HMAC (RFC 2104), each as 32 bytes. For the messages that Horovod's workers accept when
/// they are signed, which are short: it is not made for speed.
std::string sha256(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Whether two secrets are equal. The time that it takes tells nothing but their lengths.
bool are_equal_secrets(std::string_view a, std::string_view b);

}  // namespace lockstep::driver
