#pragma once

#include <lockstep/value.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "wire/channel.h"
#include "wire/messages.h"

namespace lockstep::worker {

/// The worker's queue of messages to the driver. Its thread sends them in order, and also the heartbeats. Reports are
/// collected for some milliseconds and sent together; other messages are sent at once, with everything before them. The
/// queue is bounded: adding to a full one waits. Any thread may add.
class Outbox {
 public:
  /// Starts the thread. `channel` is borrowed; `heartbeat` makes the message that is sent every `interval`; `lost` is
  /// called once, from that thread, when the peer is gone.
  Outbox(wire::Channel& channel, Seconds interval, std::function<Bytes()> heartbeat, std::function<void()> lost);
  ~Outbox();

  /// Queues a report; waits only while the outbox is full. `urgent`: it is sent at once.
  void add(wire::Report report, bool urgent = false);
  /// Queues an encoded message. Throws what check_size() throws.
  void add(Bytes message);
  /// The same with a descriptor, which is borrowed until flush() has returned.
  void add(Bytes message, int fd);
  /// Throws ConfigError if a message is too large to be sent.
  static void check_size(const Bytes& message);
  /// Returns once everything added before is written to the socket, or the peer is gone.
  void flush();
  /// Sends what is queued and then `last`, which no heartbeat follows, and ends the thread. Later messages are dropped.
  void close(std::optional<Bytes> last = std::nullopt);

 private:
  struct WithDescriptor {
    Bytes message;
    int fd;
  };
  using Item = std::variant<wire::Report, Bytes, WithDescriptor>;
  void push(Item item, std::size_t size, bool urgent);
  void loop();
  void send(std::vector<Item> items);

  wire::Channel& channel_;
  const Seconds interval_;
  const std::function<Bytes()> heartbeat_;
  const std::function<void()> lost_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, changed_;
  std::vector<Item> items_;
  std::size_t queued_bytes_ = 0;
  bool sending_ = false, stop_ = false, gone_ = false, sleeping_ = false, urgent_ = false;

  std::thread thread_;
};

}  // namespace lockstep::worker
