// A fork server whose workers have no session: each does what its first message's "config" lists, one command after the
// other.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "sys/shared_memory.h"
#include "sys/sockets.h"
#include "wire/channel.h"
#include "wire/codec.h"
#include "wire/handover.h"
#include "worker/zygote.h"

namespace {

using namespace lockstep;

worker::Birth birth;
bool stacks_end = true;

void write_stacks(int) {
  constexpr char kText[] = "a stack\nanother stack\n";
  (void)!::write(birth.stacks, kText, sizeof kText - 1);
  if (stacks_end) (void)!::write(birth.stacks, "", 1);
}

/// A child that sleeps; with `far`, one in a session of its own whose parent is gone at once.
void make_child(bool far) {
  auto [read_end, write_end] = sys::pipe_pair();
  if (::fork() == 0) {
    if (far) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
    }
    const pid_t self = ::getpid();
    (void)!::write(write_end.get(), &self, sizeof self);
    for (;;) ::pause();
  }
  if (far) ::wait(nullptr);
  pid_t child = 0;
  (void)!::read(read_end.get(), &child, sizeof child);
  std::printf("child %d\n", child);
}

void spam(int megabytes) {
  const std::string line(1023, 'x');
  for (int i = 0; i < megabytes * 1024; ++i) std::puts(line.c_str());
}

void flood(wire::Channel& channel, int megabytes) {
  const Bytes value(65536, 1);
  for (int i = 0; i < megabytes * 16; ++i) channel.send(wire::encode(wire::WorkerFinished{value}));
}

/// A checkpoint of one file "data", which is `size` letters x.
void hand_over(wire::Channel& channel, const Value& what) {
  sys::SharedMemory memory;
  const auto size = what.at("size").get<std::size_t>();
  memory.grow(size);
  std::memset(memory.data(), 'x', size);
  wire::CheckpointHeld held;
  held.report = what.at("report");
  held.storage = what.at("storage");
  held.partial = what.at("partial");
  held.files = {{"data", 0, static_cast<std::int64_t>(size)}};
  channel.send(wire::encode(held), what.value("without", false) ? -1 : memory.fd());
}

/// The next message that is not about the node's lease, which comes at any time.
std::optional<Bytes> next_message(wire::Channel& channel) {
  while (auto frame = channel.receive()) {
    try {
      if (std::holds_alternative<wire::Lease>(wire::decode<wire::DriverToWorker>(*frame))) continue;
    } catch (const wire::WireError&) {  // the test's own
    }
    return frame;
  }
  return std::nullopt;
}

void obey(wire::Channel& channel, const Value& command) {
  const std::string verb = command.at(0);
  const auto number = [&] { return command.at(1).get<int>(); };
  if (verb == "print")
    std::fputs(command.at(1).get<std::string>().c_str(), stdout);
  else if (verb == "print_error")
    std::fputs(command.at(1).get<std::string>().c_str(), stderr);
  else if (verb == "print_bytes")
    std::fwrite(command.at(1).get_binary().data(), 1, command.at(1).get_binary().size(), stdout);
  else if (verb == "print_env")
    std::printf("%s\n", std::getenv(command.at(1).get<std::string>().c_str()));
  else if (verb == "print_cwd")
    std::printf("%s\n", std::filesystem::current_path().c_str());
  else if (verb == "print_payload")
    std::printf("%zu\n", sys::read_all(birth.payload).size());
  else if (verb == "print_parent")
    std::printf("%d\n", ::getppid());
  else if (verb == "print_leader")
    std::printf("%d\n", ::getsid(0) == ::getpid() && ::getpgrp() == ::getpid());
  else if (verb == "print_stdin")
    std::printf("%d\n", std::getchar());
  else if (verb == "print_fds") {
    std::vector<int> extra;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      extra.push_back(std::stoi(entry.path().filename()));
    std::erase_if(extra, [&](int fd) {
      return fd < 3 || fd == channel.fd() || fd == birth.payload || fd == birth.stacks || ::fcntl(fd, F_GETFD) < 0;
    });
    std::printf("%zu more\n", extra.size());
  } else if (verb == "exit") {
    std::fflush(stdout);
    ::_exit(number());
  } else if (verb == "signal") {
    std::fflush(stdout);
    ::signal(number(), SIG_DFL);
    ::raise(number());
  } else if (verb == "ignore")
    ::signal(number(), SIG_IGN);
  else if (verb == "wait")
    while (const auto frame = channel.receive()) {
      if (std::holds_alternative<wire::Interrupt>(wire::decode<wire::DriverToWorker>(*frame))) ::raise(SIGINT);
    }
  else if (verb == "child")
    make_child(false);
  else if (verb == "far_child")
    make_child(true);
  else if (verb == "many_children")
    for (int i = 0; i < number(); ++i) make_child(i % 2 == 0);
  else if (verb == "spam")
    spam(number());
  else if (verb == "flood")
    flood(channel, number());
  else if (verb == "send")
    channel.send(wire::encode(wire::Heartbeat{number()}));
  else if (verb == "echo")
    for (int i = 0; i < number(); ++i) channel.send(*next_message(channel));
  else if (verb == "hand_over")
    hand_over(channel, command.at(1));
  else if (verb == "print_stored")
    std::printf("stored: %s.\n", wire::decode_one<wire::CheckpointStored>(*next_message(channel)).error.c_str());
  else if (verb == "garbage")
    (void)!::write(channel.fd(), "\xff\xff\xff\xff", 4);
  else if (verb == "stacks") {
    stacks_end = number() != 0;
    ::signal(SIGUSR2, write_stacks);
  } else if (verb == "deaf_stacks")
    ::signal(SIGUSR2, [](int) {});
  else
    std::abort();
  std::fflush(stdout);
}

}  // namespace

int main() {
  birth = worker::serve_forks(std::atoi(std::getenv("LOCKSTEP_FORK_SERVER_FD")), {});
  wire::Channel channel{sys::Descriptor(birth.socket)};
  // One that is kept gets what the others inherit as a second message, and obeys until the agent is gone.
  for (bool kept = false; const auto frame = next_message(channel); kept = true) {
    const auto begin = std::get<wire::Begin>(wire::decode<wire::DriverToWorker>(*frame));
    if (kept)
      std::printf("payload %zu\n",
                  std::get<wire::Payload>(wire::decode<wire::DriverToWorker>(*next_message(channel))).payload.size());
    for (const auto& [name, value] : begin.env) ::setenv(name.c_str(), value.c_str(), 1);
    for (const Value& command : begin.config) obey(channel, command);
    if (!begin.keep) return 0;
  }
  return 0;
}
