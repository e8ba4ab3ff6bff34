#include "agent/fork_server.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "base/log.h"
#include "base/text.h"
#include "sys/sockets.h"

namespace lockstep::agent {
namespace {

constexpr int kForkServerFd = 3;
/// At most this many requests are sent without an answer; more wait here. A local socket queues as few as ten packets,
/// and sending must not block.
constexpr std::size_t kMostOutstanding = 4;
/// A request that could not be sent is refused after this long, unless the server turns out to be dead.
constexpr Seconds kRefuseAfter{1.0};

sys::Descriptor duplicate(int fd) {
  sys::Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw EngineError(std::string("[agent] no descriptor for a worker: ") + std::strerror(errno));
  return copy;
}

}  // namespace

ForkServer::ForkServer(Loop& loop, const wire::Configure& configure, std::function<void()> idle)
    : loop_(loop), idle_(std::move(idle)), refusals_(loop) {
  sys::Descriptor theirs;
  std::tie(socket_, theirs) = sys::packet_pair();
  const sys::Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  sys::SpawnOptions options;
  options.argv = configure.program;
  options.env = configure.env;
  options.env->insert_or_assign("LOCKSTEP_FORK_SERVER_FD", std::to_string(kForkServerFd));
  // Code that runs before the fork must not start a thread pool, because children would not have its threads. Workers
  // set their own number.
  options.env->insert_or_assign("OMP_NUM_THREADS", "1");
  options.cwd = configure.cwd;
  options.fds = {{theirs.get(), kForkServerFd}, {null.get(), 0}};
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

void ForkServer::join(Client& client) { clients_.push_back(&client); }

void ForkServer::leave(Client& client) {
  std::erase(clients_, &client);
  forget_requests(client);
  std::erase_if(unsent_, [&](const Ticket& ticket) { return ticket.client == &client; });
  for (auto& [number, ticket] : tickets_)
    if (ticket.client == &client) ticket.client = nullptr;
  std::erase_if(workers_, [&](const auto& worker) { return worker.second == &client; });
  if (clients_.empty()) idle_();
}

void ForkServer::fork(Client& client, int rank, const Worker::Ends& ends, int payload) {
  Request request{&client, rank, {}};
  for (const int fd : {ends.socket.get(), payload, ends.log.get(), ends.stacks.get()})
    request.fds.push_back(duplicate(fd));
  requests_.push_back(std::move(request));
  send_requests();
}

std::vector<int> ForkServer::forget_requests(const Client& client) {
  std::vector<int> ranks;
  std::erase_if(requests_, [&](const Request& request) {
    if (request.client == &client) ranks.push_back(request.rank);
    return request.client == &client;
  });
  return ranks;
}

void ForkServer::send_requests() {
  while (ready_ && !dead_ && tickets_.size() < kMostOutstanding && !requests_.empty()) {
    const Request request = std::move(requests_.front());
    requests_.pop_front();
    std::vector<int> fds;
    for (const auto& fd : request.fds) fds.push_back(fd.get());
    const int ticket = next_ticket_++;
    const std::string text = "fork " + std::to_string(ticket);
    try {
      sys::send_with_fds(socket_.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, fds);
    } catch (const EngineError& error) {
      // If it is dying, its end is reported soon, also for every worker that never started.
      log_debug(error.what());
      unsent_.push_back({request.client, request.rank});
      why_unsent_ = error.what();
      refusals_.set(kRefuseAfter, [this] { refuse_unsent(); });
      continue;
    }
    tickets_[ticket] = {request.client, request.rank};
  }
}

/// Called by the timer: a client must not be called back from its own call.
void ForkServer::refuse_unsent() {
  while (!unsent_.empty()) {
    const Ticket ticket = unsent_.front();
    unsent_.pop_front();
    ticket.client->worker_refused(ticket.rank, why_unsent_);
  }
}

/// Returns whether there may be more to read.
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
    take_ready(packet);
  } else if (verb == "failed") {
    why_ = packet.substr(packet.find('\n') + 1);
  } else if (verb == "started" && words >> first >> second && fds.size() == 1) {
    take_started(first, second, std::move(fds[0]));
  } else if (verb == "refused" && words >> first) {
    std::string why;
    std::getline(words >> std::ws, why);
    take_refused(first, why);
  } else if (verb == "exited" && words >> first >> second >> third) {
    take_exited(first, {second, third});
  } else {
    log_error("the fork server sent " + in_quotes(packet));
  }
}

void ForkServer::take_ready(const std::string& packet) {
  ready_ = true;
  std::istringstream lines(packet);
  for (std::string line; std::getline(lines, line);)
    if (const auto equals = line.find('='); equals != std::string::npos)
      versions_[line.substr(0, equals)] = line.substr(equals + 1);
  send_requests();
  // Iterates over a copy, because a client may leave during its call.
  for (const auto clients = clients_; Client * client : clients)
    if (std::ranges::find(clients_, client) != clients_.end()) client->server_ready();
}

std::optional<ForkServer::Ticket> ForkServer::answered(int ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return std::nullopt;
  const Ticket result = found->second;
  tickets_.erase(found);
  send_requests();
  return result;
}

void ForkServer::take_started(int ticket, int pid, sys::Descriptor pidfd) {
  const auto asked = answered(ticket);
  if (!asked || asked->client == nullptr) {
    sys::send_signal(pidfd.get(), SIGKILL);
    return;
  }
  workers_[pid] = asked->client;
  asked->client->worker_started(asked->rank, {pid, std::move(pidfd)});
}

void ForkServer::take_refused(int ticket, const std::string& why) {
  const auto asked = answered(ticket);
  if (asked && asked->client != nullptr) asked->client->worker_refused(asked->rank, why);
}

void ForkServer::take_exited(int pid, sys::ExitStatus status) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return;
  Client* client = found->second;
  workers_.erase(found);
  client->worker_exited(pid, status);
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
  refusals_.cancel();
  unsent_.clear();
  requests_.clear();
  tickets_.clear();
  workers_.clear();
  while (!clients_.empty()) {
    Client* client = clients_.front();
    clients_.erase(clients_.begin());
    client->server_died(why_, ready_);
  }
  idle_();
}

}  // namespace lockstep::agent
