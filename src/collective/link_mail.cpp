#include "collective/link_mail.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/log.h"

namespace lockstep::collective {
namespace {

constexpr std::int64_t kTags = std::int64_t{1} << 30;
constexpr int kDataChannels = 1 << 29;
/// A send of so many bytes is done once they are copied, as in the mailbox of one machine.
constexpr std::size_t kCopied = std::size_t{128} << 10;
constexpr std::size_t kInHeader = 488;
/// A send that is done for its caller waits as long as it takes.
constexpr std::chrono::hours kForEver{24 * 365};

}  // namespace

struct LinkMail::Header {
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  ///< of the sender's messages; chooses the channel of the data
  std::array<std::byte, kInHeader> start{};

  int channel() const { return static_cast<int>(kTags) + static_cast<int>(number % kDataChannels); }
};

LinkMail::LinkMail(Links& links, int rank, int world, Explain explain)
    : links_(links), rank_(rank), world_(world), explain_(std::move(explain)) {}

LinkMail::~LinkMail() {
  for (Task& task : tasks_) task.thread.join();
}

void LinkMail::check(const Message& message, bool is_send) const {
  const bool any = !is_send && message.peer == kAnySource;
  if ((message.peer < 0 || message.peer >= world_ || message.peer == rank_) && !any)
    throw ConfigError("[collective] " + std::string(is_send ? "send to" : "receive from") + " peer " +
                      std::to_string(message.peer) + " by rank " + std::to_string(rank_) + " in a group of " +
                      std::to_string(world_) + "; the peer must be another rank");
  if (message.tag < 0 || message.tag >= kTags - kFirstChannel)
    throw ConfigError("[collective] a message with tag " + std::to_string(message.tag) +
                      "; between nodes, tags go from 0 to " + std::to_string(kTags - kFirstChannel - 1));
}

void LinkMail::post_send(const Message& message, MessageDone done) {
  check(message, true);
  auto header = std::make_shared<Header>();
  header->bytes = message.bytes;
  const auto* data = static_cast<const std::byte*>(message.data);
  const bool inside = message.bytes <= kInHeader;
  if (inside && message.bytes > 0) std::memcpy(header->start.data(), data, message.bytes);
  const bool copied = message.bytes <= kCopied;
  auto copy = std::make_shared<std::vector<std::byte>>();
  if (copied && !inside) {
    copy->assign(data, data + message.bytes);
    data = copy->data();
  }
  std::vector<Links::Pending> parts;
  {
    const std::lock_guard lock(mutex_);
    header->number = number_++;
  }
  const std::uint64_t number = header->number;
  try {
    parts.push_back(
        links_.send(header.get(), sizeof *header, message.peer, kFirstChannel + static_cast<int>(message.tag)));
    if (!inside) parts.push_back(links_.send(data, message.bytes, message.peer, header->channel()));
  } catch (const LinkError& error) {
    return done(explain_(error, "send", number), -1);
  }
  if (copied) done(nullptr, -1);
  auto work = [header, copy, parts = std::make_shared<std::vector<Links::Pending>>(std::move(parts)),
               timeout = copied ? std::chrono::milliseconds(kForEver) : message.timeout] {
    // Destroyed here, before what they use.
    const auto mine = std::move(*parts);
    for (const auto& part : mine) part->wait(timeout);
    return -1;
  };
  run(true, "send", number, std::move(work), copied ? MessageDone() : std::move(done));
}

void LinkMail::post_receive(const Message& message, MessageDone done) {
  check(message, false);
  auto header = std::make_shared<Header>();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = number_++;
  }
  std::shared_ptr<Links::Transfer> first;
  try {
    first = links_.receive(header.get(), sizeof *header, message.peer, kFirstChannel + static_cast<int>(message.tag));
  } catch (const LinkError& error) {
    return done(explain_(error, "receive", number), -1);
  }
  auto work = [this, header, first = std::move(first), message]() mutable {
    const auto mine = std::move(first);
    const int source = mine->wait(message.timeout);
    const bool fits = header->bytes == message.bytes;
    if (header->bytes <= kInHeader) {
      if (fits && message.bytes > 0) std::memcpy(message.data, header->start.data(), message.bytes);
    } else {
      std::vector<std::byte> dropped(fits ? 0 : header->bytes);
      links_.receive(fits ? message.data : dropped.data(), header->bytes, source, header->channel())
          ->wait(message.timeout);
    }
    if (!fits)
      throw ConfigError("[collective] receive: rank " + std::to_string(source) + " sent " +
                        std::to_string(header->bytes) + " bytes with tag " + std::to_string(message.tag) + ", and " +
                        std::to_string(message.bytes) + " were asked for; give both sides the same size");
    return source;
  };
  run(false, "receive", number, std::move(work), std::move(done));
}

void LinkMail::run(bool is_send, const char* what, std::uint64_t number, Work work, MessageDone done) {
  const std::lock_guard lock(mutex_);
  reap();
  Task& task = tasks_.emplace_back();
  task.is_send = is_send;
  task.thread = std::thread([this, &task, what, number, work = std::move(work), done = std::move(done)]() mutable {
    ::pthread_setname_np(::pthread_self(), "ls-mail");
    std::exception_ptr error;
    int source = -1;
    try {
      source = work();
    } catch (const LinkError& lost) {
      error = explain_(lost, what, number);
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;
    try {
      if (done) done(error, source);
    } catch (const std::exception& thrown) {
      log_error("[collective] the callback of a " + std::string(what) + " threw: " + thrown.what());
    }
    done = nullptr;
    const std::lock_guard inner(mutex_);
    task.ended = true;
    ended_.notify_all();
  });
}

/// Joins the threads that have ended; `mutex_` is held.
void LinkMail::reap() {
  tasks_.remove_if([](Task& task) {
    if (task.ended) task.thread.join();
    return task.ended;
  });
}

void LinkMail::finish_sends(std::chrono::milliseconds within) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, within, [&] {
    return std::none_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.is_send && !task.ended; });
  });
}

}  // namespace lockstep::collective
