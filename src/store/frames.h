#pragma once

#include <lockstep/value.h>

#include <cstddef>
#include <optional>

namespace lockstep::store {

/// Messages between lockstep-store and the processes that use it: 4 bytes with the length, little endian, then one JSON
/// object of that length. Both sides refuse longer ones.
inline constexpr std::size_t kLongestFrame = std::size_t{64} << 20;

/// Sends one message. Throws StorageError if the other end is gone or the message is too long.
void send_frame(int socket, const Value& message);

/// The next message; nothing at the end of the stream. Memory grows with the bytes that arrive. Throws StorageError for
/// anything that is not a message, and when the stream ends within one.
std::optional<Value> receive_frame(int socket);

}  // namespace lockstep::store
