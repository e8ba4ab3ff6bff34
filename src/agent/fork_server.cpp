#include "agent/fork_server.h"

#include <fcntl.h>

#include <csignal>
#include <sstream>

#include "base/log.h"
#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

constexpr int kFd = 3;
/// Requests that the fork server has not answered. A local socket queues as few as ten packets, and sending must not
/// wait.
constexpr int kMostOutstanding = 4;

sys::Descriptor duplicate(int fd) { return sys::Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

}  // namespace

ForkServer::ForkServer(Loop& loop, const wire::Configure& configure, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {
  sys::Descriptor theirs;
  std::tie(socket_, theirs) = sys::packet_pair();
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = configure.program;
  options.env = configure.env;
  options.env->insert_or_assign("LOCKSTEP_FORK_SERVER_FD", std::to_string(kFd));
  // Operations before the fork must not start a pool of threads, which children would lack. Workers set their own
  // number.
  options.env->insert_or_assign("OMP_NUM_THREADS", "1");
  options.cwd = configure.cwd;
  options.fds = {{theirs.get(), kFd}, {null.get(), 0}};
  options.parent_death_signal = SIGKILL;
  process_ = sys::spawn(options);
  socket_watch_ = Watch(loop_, socket_.get());
  socket_watch_.on_readable([this] { read(); });
  process_watch_ = Watch(loop_, process_.pidfd.get());
  process_watch_.on_readable([this] { ended(); });
}

ForkServer::~ForkServer() {
  if (!dead_) sys::send_signal(process_.pidfd.get(), SIGKILL);
}

void ForkServer::fork(int rank, const Worker::Ends& ends, int payload) {
  Request request{rank, {}};
  for (const int fd : {ends.socket.get(), payload, ends.log.get(), ends.stacks.get()})
    request.fds.push_back(duplicate(fd));
  requests_.push_back(std::move(request));
  send_requests();
}

void ForkServer::forget_requests() { requests_.clear(); }

void ForkServer::send_requests() {
  while (ready_ && !dead_ && outstanding_ < kMostOutstanding && !requests_.empty()) {
    const Request request = std::move(requests_.front());
    requests_.pop_front();
    std::vector<int> fds;
    for (const auto& fd : request.fds) fds.push_back(fd.get());
    const std::string text = "fork " + std::to_string(request.rank);
    try {
      sys::send_with_fds(socket_.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
    } catch (const EngineError& error) {
      // It is dying: its end is told when it has ended, and counts for every worker that never began.
      log_debug(error.what());
      return;
    }
    ++outstanding_;
  }
}

/// Whether there may be more.
bool ForkServer::read() {
  std::pair<std::vector<std::uint8_t>, std::vector<sys::Descriptor>> packet;
  try {
    packet = sys::receive_with_fds(socket_.get());
  } catch (const EngineError& error) {
    log_debug(error.what());
    return false;
  }
  auto& [bytes, fds] = packet;
  if (bytes.empty()) {
    socket_watch_.pause();
    return false;
  }
  handle(std::string(bytes.begin(), bytes.end()), std::move(fds));
  return true;
}

void ForkServer::handle(const std::string& packet, std::vector<sys::Descriptor> fds) {
  std::istringstream words(packet);
  std::string verb;
  int first = 0, second = 0, third = 0;
  words >> verb;
  if (verb == "ready") {
    ready_ = true;
    send_requests();
    handlers_.ready();
  } else if (verb == "failed") {
    why_ = packet.substr(packet.find('\n') + 1);
  } else if (verb == "started" && words >> first >> second && fds.size() == 1) {
    --outstanding_;
    send_requests();
    handlers_.started(first, {second, std::move(fds[0])});
  } else if (verb == "refused" && words >> first) {
    --outstanding_;
    send_requests();
    std::string why;
    std::getline(words >> std::ws, why);
    handlers_.refused(first, why);
  } else if (verb == "exited" && words >> first >> second >> third) {
    handlers_.exited(first, {second, third});
  } else {
    log_error("the fork server sent " + lockstep::in_quotes(packet));
  }
}

void ForkServer::ended() {
  process_watch_.pause();
  while (read()) {
  }
  socket_watch_.pause();
  dead_ = true;
  const auto status = sys::take_exit(process_.pidfd.get(), false).value_or(sys::ExitStatus{});
  const std::string how = status.signal != 0 ? "was killed by signal " + std::to_string(status.signal)
                                             : "ended with code " + std::to_string(status.code);
  if (why_.empty())
    why_ = "[agent] the fork server " + how + (ready_ ? "" : " before it had imported its modules") +
           "; its messages are on standard error";
  handlers_.died(why_);
}

}  // namespace lockstep::agent
