#include "sys/signals.h"

#include <atomic>
#include <cerrno>

#include "sys/sockets.h"

namespace lockstep::sys {
namespace {

std::atomic<int> signal_pipe = -1;

void note(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  if (::write(signal_pipe, &byte, 1) < 0) {
    // A full pipe holds signals enough.
  }
  errno = saved;
}

void watch(int signal, struct sigaction& old) {
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  sigaction(signal, nullptr, &old);
  if (old.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
}

}  // namespace

SignalWatch::SignalWatch() {
  auto [read, write] = pipe_pair();
  read_ = std::move(read);
  write_ = std::move(write);
  set_nonblocking(read_.get(), true);
  set_nonblocking(write_.get(), true);
  signal_pipe = write_.get();
  watch(SIGINT, old_int_);
  watch(SIGTERM, old_term_);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  signal_pipe = -1;
}

int SignalWatch::take() {
  unsigned char byte = 0;
  return ::read(read_.get(), &byte, 1) == 1 ? byte : 0;
}

}  // namespace lockstep::sys
