#pragma once

#include <string>
#include <string_view>

namespace lockstep::horovod {

/// SHA-256 (FIPS 180-4) and its HMAC (RFC 2104), each as 32 bytes. Used to sign short messages to Horovod's workers;
/// not optimised for speed.
std::string sha256(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Whether two secrets are equal, in a time that depends only on their lengths.
bool are_equal_secrets(std::string_view a, std::string_view b);

}  // namespace lockstep::horovod
