#include "worker/outbox.h"

#include <algorithm>

#include "base/log.h"
#include "wire/codec.h"

namespace lockstep::worker {
namespace {

constexpr std::size_t kMaxQueuedBytes = 16 << 20;
constexpr std::size_t kMaxQueuedItems = 1 << 16;
/// At most this many reports go into one frame, so that the driver never has to decode a huge one.
constexpr std::size_t kReportsPerFrame = 1024;
/// After a send, reports are collected for this long before the next one, so that not every training step wakes the
/// thread.
constexpr Seconds kGather{0.005};

}  // namespace

Outbox::Outbox(wire::Channel& channel, Seconds interval, std::function<Bytes()> heartbeat, std::function<void()> lost)
    : channel_(channel), interval_(interval), heartbeat_(std::move(heartbeat)), lost_(std::move(lost)), thread_([this] {
        loop();
      }) {}

Outbox::~Outbox() { close(); }

/// Checked before the message is queued, because the sending thread could not report the error.
void Outbox::check_size(const Bytes& message) {
  if (message.size() > wire::kMaxFrame)
    throw ConfigError("[worker] a message of " + std::to_string(message.size() >> 20) + " MB is too big; at most " +
                      std::to_string(wire::kMaxFrame >> 20) + " MB can be returned or kept in memory at once");
}

void Outbox::close(std::optional<Bytes> last) {
  if (last) check_size(*last);
  {
    const std::lock_guard lock(mutex_);
    if (last && !stop_) items_.emplace_back(std::move(*last));
    stop_ = true;
  }
  wake_.notify_one();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Outbox::add(wire::Report report, bool urgent) {
  const std::size_t size = report.metrics.size() + sizeof(wire::Report);
  push(std::move(report), size, urgent);
}

void Outbox::add(Bytes message) {
  check_size(message);
  const std::size_t size = message.size();
  push(std::move(message), size, true);
}

void Outbox::add(Bytes message, int fd) {
  check_size(message);
  const std::size_t size = message.size();
  push(WithDescriptor{std::move(message), fd}, size, true);
}

void Outbox::push(Item item, std::size_t size, bool urgent) {
  std::unique_lock lock(mutex_);
  // An empty outbox accepts a message of any size, because a checkpoint in memory alone may exceed the bound.
  const auto has_room = [&] {
    return gone_ || stop_ || items_.empty() ||
           (queued_bytes_ + size <= kMaxQueuedBytes && items_.size() < kMaxQueuedItems);
  };
  if (!has_room()) {
    urgent_ = true;
    wake_.notify_one();
    changed_.wait(lock, has_room);
  }
  if (gone_ || stop_) return;
  items_.push_back(std::move(item));
  queued_bytes_ += size;
  urgent_ = urgent_ || urgent;
  // If the thread is sending or collecting, it checks the queue again by itself; waking it would cost a system call.
  if (sleeping_ || urgent) wake_.notify_one();
}

void Outbox::flush() {
  std::unique_lock lock(mutex_);
  urgent_ = true;
  wake_.notify_one();
  changed_.wait(lock, [&] { return gone_ || (items_.empty() && !sending_); });
}

void Outbox::loop() {
  Instant next_beat = now();
  Instant gather_until{};
  for (;;) {
    std::vector<Item> items;
    bool beats = true;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, std::min(gather_until, next_beat), [&] { return stop_ || urgent_; });
      sleeping_ = true;
      wake_.wait_until(lock, next_beat, [&] { return stop_ || urgent_ || !items_.empty(); });
      sleeping_ = false;
      if (stop_ && items_.empty()) return;
      beats = !stop_;
      urgent_ = false;
      items.swap(items_);
      queued_bytes_ = 0;
      sending_ = true;
    }
    if (!items.empty()) gather_until = now() + ticks(kGather);
    changed_.notify_all();
    bool gone = false;
    try {
      if (!items.empty()) send(std::move(items));
      if (beats && now() >= next_beat) {
        next_beat = now() + ticks(interval_);
        channel_.send(heartbeat_());
      }
    } catch (const Error& error) {
      log_debug(error.what());
      gone = true;
    }
    {
      const std::lock_guard lock(mutex_);
      sending_ = false;
      gone_ = gone_ || gone;
    }
    changed_.notify_all();
    if (gone) return lost_();
  }
}

void Outbox::send(std::vector<Item> items) {
  wire::Reports batch;
  const auto send_batch = [&] {
    if (batch.reports.empty()) return;
    channel_.send(wire::encode(batch));
    batch.reports.clear();
  };
  for (Item& item : items) {
    if (auto* report = std::get_if<wire::Report>(&item)) {
      batch.reports.push_back(std::move(*report));
      if (batch.reports.size() == kReportsPerFrame) send_batch();
    } else {
      send_batch();
      if (const auto* with = std::get_if<WithDescriptor>(&item))
        channel_.send(with->message, with->fd);
      else
        channel_.send(std::get<Bytes>(item));
    }
  }
  send_batch();
}

}  // namespace lockstep::worker
