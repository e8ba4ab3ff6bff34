#include "agent/control_link.h"

#include <lockstep/error.h>
#include <sys/socket.h>

#include <string>

#include "base/log.h"
#include "base/text.h"
#include "engine/head_link.h"
#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

bool is_socket(int fd, int wanted) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == wanted;
}

}  // namespace

ControlLink::ControlLink(Loop& loop, sys::Descriptor socket, Handlers handlers)
    : socket_(std::move(socket)), handlers_(std::move(handlers)), watch_(loop, socket_.get()) {
  if (!is_socket(socket_.get(), SOCK_SEQPACKET)) throw EngineError("[agent] --fd is not a packet socket");
  watch_.on_readable([this] { read(); });
}

void ControlLink::read() {
  try {
    auto [bytes, fds] = sys::receive_with_fds(socket_.get());
    if (bytes.empty()) {
      watch_.pause();
      return handlers_.closed();
    }
    const std::string packet(bytes.begin(), bytes.end());
    if (packet == "run" && fds.size() == 1 && is_socket(fds[0].get(), SOCK_STREAM))
      handlers_.run(std::move(fds[0]));
    else if (packet == engine::head_link::kWord && fds.size() == 1 && is_socket(fds[0].get(), SOCK_SEQPACKET))
      handlers_.listen(std::move(fds[0]));
    else
      log_error("ignored a packet on the control connection: " + in_quotes(packet.substr(0, 100)) + " with " +
                std::to_string(fds.size()) + " descriptors");
  } catch (const EngineError& error) {
    log_error(error.what());
  }
}

}  // namespace lockstep::agent
