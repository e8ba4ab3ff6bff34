// lockstep-store: reaches object stores for the processes of a run, which hold neither TLS nor the stores' libraries.

#include <lockstep/error.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "storage/places.h"
#include "storage/requests.h"
#include "store/frames.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace lockstep {
namespace {

constexpr const char* kUsage =
    "Started by Lockstep for addresses of object stores: lockstep-store --fd N --parent PID\n"
    "  --fd N        connected packet socket, which brings connections\n"
    "  --parent PID  end when this process ends\n";

/// How often it looks whether the last connection is closed, once no new one can come.
constexpr int kLookEvery = 100;  // milliseconds

std::atomic<int> open_connections = 0;

storage::Places& places() {
  static auto* instance = new storage::Places;
  return *instance;
}

void serve(sys::Descriptor connection) {
  try {
    while (const auto request = store::receive_frame(connection.get()))
      store::send_frame(connection.get(), storage::answer(*request, places()));
  } catch (const Error& error) {
    log_debug(error.what());  // that process is gone, or is none of ours
  }
  connection.reset();
  --open_connections;
}

/// Takes connections until the control socket closes. Ends with the parent, and when nobody uses it any more.
void run(int control, int parent) {
  const sys::Descriptor watched = sys::open_pidfd(parent);
  if (!watched) return;
  bool closed = false;
  while (!closed || open_connections > 0) {
    pollfd items[] = {{watched.get(), POLLIN, 0}, {closed ? -1 : control, POLLIN, 0}};
    const int ready = ::poll(items, 2, closed ? kLookEvery : -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready <= 0) continue;
    if (items[0].revents != 0) return;
    auto [bytes, fds] = sys::receive_with_fds(control);
    closed = bytes.empty();
    for (sys::Descriptor& each : fds) {
      ++open_connections;
      std::thread(serve, std::move(each)).detach();
    }
  }
}

bool read_number(const char* text, int& number) {
  const char* end = text + std::strlen(text);
  return std::from_chars(text, end, number).ptr == end && number > 0;
}

int main_of(int argc, char** argv) {
  int control = 0, parent = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--fd") == 0) read_number(argv[i + 1], control);
    if (std::strcmp(argv[i], "--parent") == 0) read_number(argv[i + 1], parent);
  }
  if (control < 3 || parent == 0) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  sys::set_process_name("lockstep-store");
  sys::close_all_but(control);
  sys::close_on_exec(control);
  try {
    const std::uint8_t word = 'r';
    sys::send_with_fds(control, {&word, 1}, {});
    run(control, parent);
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

// Without destructors: those of Arrow's S3 need a certain order, and nothing is left to do.
int main(int argc, char** argv) { _exit(lockstep::main_of(argc, argv)); }
