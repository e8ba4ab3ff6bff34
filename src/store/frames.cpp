#include "store/frames.h"

#include <lockstep/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/json.h"

namespace lockstep::store {
namespace {

constexpr std::size_t kHeader = 4;
constexpr std::size_t kPiece = std::size_t{1} << 20;

[[noreturn]] void lost(const std::string& what) { throw StorageError("[storage] lockstep-store: " + what); }

/// Reads `size` bytes; returns fewer only at the end of the stream.
std::string receive_bytes(int socket, std::size_t size) {
  std::string bytes;
  while (bytes.size() < size) {
    const std::size_t before = bytes.size();
    bytes.resize(before + std::min(size - before, kPiece));
    const ssize_t count = ::recv(socket, bytes.data() + before, bytes.size() - before, 0);
    bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != ECONNRESET) lost("cannot receive: " + std::generic_category().message(errno));
    if (count <= 0) break;
  }
  return bytes;
}

void send_bytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) lost("cannot send: " + std::generic_category().message(errno));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

void send_frame(int socket, const Value& message) {
  const std::string text = to_json(message);
  if (text.size() > kLongestFrame) lost("a message of " + std::to_string(text.size()) + " bytes is too long");
  std::string frame;
  for (std::size_t i = 0; i < kHeader; ++i) frame += static_cast<char>(text.size() >> (8 * i) & 0xff);
  send_bytes(socket, frame + text);
}

std::optional<Value> receive_frame(int socket) {
  const std::string header = receive_bytes(socket, kHeader);
  if (header.empty()) return std::nullopt;
  if (header.size() < kHeader) lost("the connection ended within a message");
  std::size_t size = 0;
  for (std::size_t i = 0; i < kHeader; ++i) size |= std::size_t{static_cast<unsigned char>(header[i])} << (8 * i);
  if (size > kLongestFrame) lost("a message of " + std::to_string(size) + " bytes is too long");
  const std::string text = receive_bytes(socket, size);
  if (text.size() < size) lost("the connection ended within a message");
  Value message = parse_json(text, "a message of lockstep-store");
  if (!message.is_object()) lost("a message is not an object");
  return message;
}

}  // namespace lockstep::store
