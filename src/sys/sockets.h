#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::sys {

// Not called socket.h: as sys/socket.h in an include directory it would hide the system's header.

/// Two connected stream sockets of the local family, both close-on-exec.
std::pair<Descriptor, Descriptor> socket_pair();
/// The same, preserving message boundaries (for messages with descriptors).
std::pair<Descriptor, Descriptor> packet_pair();
/// Read end, write end; close-on-exec.
std::pair<Descriptor, Descriptor> pipe_pair();
/// An eventfd; close-on-exec and non-blocking.
Descriptor event_descriptor();

/// Sends one message with descriptors; at most 64 kB and 16 descriptors. Throws EngineError if the peer is gone.
void send_with_fds(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds);
/// The next message and its descriptors (close-on-exec); empty bytes at end of stream.
std::pair<std::vector<std::uint8_t>, std::vector<Descriptor>> receive_with_fds(int socket);

/// Like recv() on a stream socket, with `flags`. Appends the descriptors that came with the bytes, close-on-exec; those
/// for which this process has no room are lost. Descriptors arrive with the first byte that was sent with them, or
/// earlier.
ssize_t receive_some(int socket, std::span<std::uint8_t> into, std::vector<Descriptor>& fds, int flags);

/// A sealed, read-only file in memory with these contents.
Descriptor sealed_memory(const char* name, std::span<const std::uint8_t> bytes);
/// The whole contents of a descriptor that can be mapped.
std::vector<std::uint8_t> read_all(int fd);

void set_nonblocking(int fd, bool on);
/// Clears close-on-exec.
void inherit_on_exec(int fd);
/// Sets it.
void close_on_exec(int fd);
/// Closes all descriptors above 2 except `kept` (> 2), because they were inherited by accident.
void close_all_but(int kept);

}  // namespace lockstep::sys
