#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "horovod/notice.h"
#include "horovod/watched.h"
#include "sys/descriptor.h"

namespace lockstep::horovod {

struct SenderOptions {
  Seconds pause{0.25};  ///< before a notice is repeated; doubles each time
  Seconds longest_pause{5.0};
  Seconds timeout{5.0};  ///< for a worker to read a notice and answer
};

/// Notifies a worker of an elastic job that the hosts have changed, repeatedly as long as it is due, because only the
/// workers' behaviour shows whether it was received. Connects to loopback addresses only.
///
/// Never blocks and has no thread: its socket is in the owner's epoll, under the given number.
class NoticeSender {
 public:
  /// `epoll` must outlive it.
  NoticeSender(const sys::Descriptor& epoll, std::uint64_t id, SenderOptions options)
      : epoll_(epoll), id_(id), options_(options) {}

  void set_address(int member, NoticeAddress address) { addresses_.insert_or_assign(member, std::move(address)); }
  void forget(int member) { addresses_.erase(member); }
  void forget_all();

  /// `member` is the one to notify, or nobody. Call it whenever that may have changed, and at the deadline.
  void update(std::optional<int> member, Instant now);
  std::optional<Instant> deadline() const;
  /// The socket is ready.
  void go_on();

 private:
  /// A notice that is being sent.
  struct Notice {
    int member;
    Watched socket;
    std::string out;  ///< empty: it is sent, and the answer is awaited
    Instant deadline;
  };
  void begin(int member, Instant now);

  const sys::Descriptor& epoll_;
  std::uint64_t id_;
  SenderOptions options_;
  std::map<int, NoticeAddress> addresses_;
  std::optional<Notice> notice_;
  std::optional<Instant> due_;  ///< when to send the next one
  Seconds pause_{0};
  std::int32_t count_ = 0;
};

}  // namespace lockstep::horovod
