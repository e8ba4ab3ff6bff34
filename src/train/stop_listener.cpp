#include "train/stop_listener.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "store/stop_request.h"
#include "sys/sockets.h"

namespace lockstep::train {
namespace {

/// Descriptors of inotify that no run uses. They are used again, because closing one waits in the kernel, up to 20 ms.
class IdleWatches {
 public:
  sys::Descriptor take() {
    const std::lock_guard lock(mutex_);
    if (process_ != ::getpid()) idle_.clear();  // a child of fork() must not read its parent's events
    process_ = ::getpid();
    if (idle_.empty()) return sys::Descriptor(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    sys::Descriptor inotify = std::move(idle_.back());
    idle_.pop_back();
    return inotify;
  }

  void give(sys::Descriptor inotify) {
    const std::lock_guard lock(mutex_);
    if (process_ == ::getpid()) idle_.push_back(std::move(inotify));
  }

 private:
  std::mutex mutex_;
  pid_t process_ = 0;
  std::vector<sys::Descriptor> idle_;
};

/// Never destroyed: closing would delay the end of the process.
IdleWatches& idle_watches() {
  static auto& watches = *new IdleWatches;
  return watches;
}

void drop_events(int inotify) {
  std::array<char, 4096> events;
  while (::read(inotify, events.data(), events.size()) > 0) {
  }
}

}  // namespace

void StopListener::on_start(const RunInfo& run) {
  try {
    directory_ = run.path;
    files_.enter(directory_);
    ended_ = sys::event_descriptor();
    inotify_ = idle_watches().take();
    watch_ = ::inotify_add_watch(inotify_.get(), directory_.c_str(), IN_MOVED_TO | IN_ONLYDIR);
    if (watch_ < 0) sys::throw_file_error("watch", directory_, errno);
    look();  // drops the request of an earlier driver
    thread_ = std::thread([this] { listen(); });
  } catch (const Error& error) {
    log_debug(error.what());
  } catch (const std::system_error& error) {
    log_debug(error.what());
  }
}

void StopListener::listen() {
  std::array<pollfd, 2> items{{{inotify_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(items.data(), items.size(), -1) < 0) continue;  // a signal
    if (items[1].revents != 0) return;
    drop_events(inotify_.get());
    look();
  }
}

void StopListener::look() {
  try {
    if (store::take_stop_request(files_, directory_, store::DriverProcess::current())) signals_.put(SIGINT);
  } catch (const StorageError& error) {
    log_debug(error.what());
  }
}

void StopListener::end() {
  if (!thread_.joinable()) return;
  ::eventfd_write(ended_.get(), 1);
  thread_.join();
  ::inotify_rm_watch(inotify_.get(), watch_);
  drop_events(inotify_.get());
  idle_watches().give(std::move(inotify_));
  try {
    // One that came too late must not end a later run in this directory.
    store::take_stop_request(files_, directory_, store::DriverProcess::current());
  } catch (const StorageError& error) {
    log_debug(error.what());
  }
}

}  // namespace lockstep::train
