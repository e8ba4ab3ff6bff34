#include "horovod/watched.h"

#include <sys/epoll.h>

namespace lockstep::horovod {

bool Watched::watch(std::uint64_t id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  const bool done = ::epoll_ctl(epoll_, watched_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket_.get(), &event) == 0;
  watched_ = watched_ || done;
  return done;
}

void Watched::forget() {
  if (socket_ && std::exchange(watched_, false)) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);
}

}  // namespace lockstep::horovod
