#include "agent/loop.h"

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

namespace lockstep::agent {

using Callback = std::function<void()>;

struct Loop::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  asio::signal_set signals{context};
  std::function<void(int)> on_signal;

  void wait_for_signal() {
    signals.async_wait([this](asio::error_code error, int signal) {
      if (error) return;
      wait_for_signal();
      on_signal(signal);
    });
  }
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

void Loop::run() { impl_->context.run(); }
void Loop::stop() { impl_->context.stop(); }
void Loop::post(Callback callback) { asio::post(impl_->context, std::move(callback)); }

void Loop::on_signals(std::initializer_list<int> signals, std::function<void(int)> callback) {
  for (const int signal : signals) impl_->signals.add(signal);
  impl_->on_signal = std::move(callback);
  impl_->wait_for_signal();
}

// ---------------------------------------------------------------- descriptors

struct Watch::Impl : std::enable_shared_from_this<Watch::Impl> {
  Impl(asio::io_context& context, int fd) : descriptor(context, fd) {}

  asio::posix::stream_descriptor descriptor;
  // Shared, so that a callback that destroys the watch is not itself destroyed while it runs.
  std::shared_ptr<const Callback> on_read;
  bool reading = false;
  bool waiting = false;

  void wait() {
    if (!reading || waiting) return;
    waiting = true;
    descriptor.async_wait(asio::posix::descriptor_base::wait_read, [self = shared_from_this()](asio::error_code error) {
      self->waiting = false;
      if (error || !self->reading) return;
      const auto callback = self->on_read;
      (*callback)();
      self->wait();
    });
  }

  void end() {
    reading = false;
    on_read.reset();
    descriptor.release();
  }
};

Watch::Watch(Loop& loop, int fd) : impl_(std::make_shared<Impl>(loop.impl_->context, fd)) {}
Watch::Watch(Watch&&) noexcept = default;

Watch::~Watch() {
  if (impl_) impl_->end();
}

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    if (impl_) impl_->end();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

void Watch::on_readable(Callback callback) {
  impl_->on_read = std::make_shared<const Callback>(std::move(callback));
  resume();
}

void Watch::pause() {
  if (impl_) impl_->reading = false;
}

void Watch::resume() {
  if (!impl_ || !impl_->on_read) return;
  impl_->reading = true;
  impl_->wait();
}

void Watch::once_writable(Callback callback) {
  impl_->descriptor.async_wait(asio::posix::descriptor_base::wait_write,
                               [self = impl_, callback = std::move(callback)](asio::error_code error) {
                                 if (!error && self->descriptor.is_open()) callback();
                               });
}

// ---------------------------------------------------------------- timers

struct Timer::Impl {
  explicit Impl(asio::io_context& context) : timer(context) {}
  asio::steady_timer timer;
  int generation = 0;
};

Timer::Timer(Loop& loop) : impl_(std::make_shared<Impl>(loop.impl_->context)) {}
Timer::Timer(Timer&&) noexcept = default;

Timer::~Timer() {
  if (impl_) cancel();
}

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    if (impl_) cancel();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

void Timer::set(Seconds delay, Callback callback) {
  cancel();
  impl_->timer.expires_after(ticks(delay));
  // A queued handler cannot be cancelled; the generation shows that it is stale.
  impl_->timer.async_wait(
      [impl = impl_, generation = impl_->generation, callback = std::move(callback)](asio::error_code error) {
        if (!error && impl->generation == generation) callback();
      });
}

void Timer::cancel() {
  ++impl_->generation;
  impl_->timer.cancel();
}

}  // namespace lockstep::agent
