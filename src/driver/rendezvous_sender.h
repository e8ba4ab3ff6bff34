#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "driver/rendezvous_notice.h"
#include "driver/watched.h"
#include "sys/descriptor.h"

namespace lockstep::driver {

struct SenderOptions {
  Seconds pause{0.25};  ///< before a notice is sent again; twice as long each time
  Seconds longest_pause{5.0};
  Seconds timeout{5.0};  ///< for a worker to take a notice and answer it
};

/// Tells a worker of an elastic job that the hosts have changed, again and again as long as that is due: whether it was
/// heard shows only in what workers do. Connects to addresses of the loopback and to no others.
///
/// Never waits, has no thread: its socket stands in the epoll of its owner, under the number that it was given.
class NoticeSender {
 public:
  /// `epoll` must outlive it.
  NoticeSender(const sys::Descriptor& epoll, std::uint64_t id, SenderOptions options)
      : epoll_(epoll), id_(id), options_(options) {}

  void set_address(int member, NoticeAddress address) { addresses_.insert_or_assign(member, std::move(address)); }
  void forget(int member) { addresses_.erase(member); }
  void forget_all();

  /// `member` is to hear of it; nobody: there is nothing to tell. Call it whenever either may have changed, and at the
  /// deadline.
  void update(std::optional<int> member, Instant now);
  std::optional<Instant> deadline() const;
  /// The socket is ready.
  void go_on();

 private:
  /// On its way.
  struct Notice {
    int member;
    Watched socket;
    std::string out;  ///< empty: it has been sent, and the answer is due
    Instant deadline;
  };
  void begin(int member, Instant now);

  const sys::Descriptor& epoll_;
  std::uint64_t id_;
  SenderOptions options_;
  std::map<int, NoticeAddress> addresses_;
  std::optional<Notice> notice_;
  std::optional<Instant> due_;  ///< when the next one is to be sent
  Seconds pause_{0};
  std::int32_t count_ = 0;
};

}  // namespace lockstep::driver
