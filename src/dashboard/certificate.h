#pragma once

#include <string>
#include <string_view>

namespace lockstep::dashboard {

struct Certificate {
  std::string certificate, key;  ///< PEM
  std::string fingerprint;       ///< SHA-256 of the certificate, "AB:CD:..."
};

/// A new certificate for this host name or address, signed by its own key (ECDSA, P-256), valid for a year. It is in
/// memory only. Throws EngineError if OpenSSL cannot make it.
Certificate make_certificate(const std::string& host);
/// The SHA-256 of a PEM certificate; empty if it is none.
std::string fingerprint_of(const std::string& certificate);

/// SHA-256 in base64, as Content-Security-Policy names scripts.
std::string sha256_base64(std::string_view text);

}  // namespace lockstep::dashboard
