#pragma once

#include <lockstep/value.h>

#include <string>

namespace lockstep::sys {

/// Bytes of a run's secret, which agents of other nodes must know to join.
inline constexpr std::size_t kSecretSize = 32;

/// The secret in a file: 64 hexadecimal digits, maybe with white space around them. Throws ConfigError if it is not
/// one, or if others than its owner may read or write the file.
Bytes read_secret_file(const std::string& path);

/// The same from the first line of standard input.
Bytes read_secret_line();

/// A new secret.
Bytes make_secret();
/// Its 64 digits.
std::string secret_text(const Bytes& secret);
/// Writes it to a new file of mode 0600, in a directory that is made if need be. Throws StorageError.
void write_secret_file(const std::string& path, const Bytes& secret);

}  // namespace lockstep::sys
