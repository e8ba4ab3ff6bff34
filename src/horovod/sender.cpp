#include "horovod/sender.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"

namespace lockstep::horovod {

void NoticeSender::forget_all() {
  addresses_.clear();
  notice_.reset();
  due_.reset();
}

void NoticeSender::update(std::optional<int> member, Instant now) {
  if (notice_ && (now >= notice_->deadline || (member && notice_->member != *member))) notice_.reset();
  if (!member) {
    due_.reset();
    pause_ = options_.pause;
  } else if (!notice_ && (!due_ || now >= *due_)) {
    begin(*member, now);
  }
}

std::optional<Instant> NoticeSender::deadline() const { return notice_ ? std::optional(notice_->deadline) : due_; }

/// The result does not matter: notices are repeated as long as they are due.
void NoticeSender::begin(int member, Instant now) {
  const bool is_first = !due_;
  due_ = now + ticks(pause_);
  pause_ = std::min(2 * pause_, options_.longest_pause);
  const auto address = addresses_.find(member);
  const auto place = address == addresses_.end() ? std::nullopt : address->second.loopback();
  if (!place && is_first)
    log_warning("[rendezvous] rank " + std::to_string(member) +
                " cannot be notified that a worker is back: it gave no loopback address");
  if (!place) return;
  sys::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  Notice notice{member, Watched(epoll_, std::move(socket)), notice_text(address->second.key, ++count_),
                now + ticks(options_.timeout)};
  if (!notice.socket) return;
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<std::uint16_t>(place->second));
  ::inet_pton(AF_INET, place->first.c_str(), &target.sin_addr);
  const int done = ::connect(notice.socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
  if (done < 0 && errno != EINPROGRESS) return;
  if (notice.socket.watch(id_, EPOLLOUT)) notice_.emplace(std::move(notice));
}

void NoticeSender::go_on() {
  if (!notice_) return;
  std::string& out = notice_->out;
  while (!out.empty()) {
    const ssize_t size = ::send(notice_->socket.get(), out.data(), out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) return notice_.reset();
    out.erase(0, static_cast<std::size_t>(size));
    if (out.empty()) notice_->socket.watch(id_, EPOLLIN);
  }
  // Read the answer, because a worker would log an error otherwise; its content does not matter.
  std::array<char, 1024> answer;
  const ssize_t size = ::recv(notice_->socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  if (size >= 0 || (errno != EAGAIN && errno != EINTR)) notice_.reset();
}

}  // namespace lockstep::horovod
