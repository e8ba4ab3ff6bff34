#include "collective/mailbox.h"

#include <lockstep/error.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/log.h"
#include "collective/guardian.h"

namespace lockstep::collective {
namespace {

constexpr auto kMessageSpin = std::chrono::microseconds(50);

void copy_to_ring(std::byte* ring, std::size_t capacity, std::uint64_t at, const void* from, std::size_t bytes) {
  const std::size_t offset = at & (capacity - 1);
  const std::size_t first = std::min(bytes, capacity - offset);
  if (first > 0) std::memcpy(ring + offset, from, first);
  if (bytes > first) std::memcpy(ring, static_cast<const std::byte*>(from) + first, bytes - first);
}

void copy_from_ring(void* to, const std::byte* ring, std::size_t capacity, std::uint64_t at, std::size_t bytes) {
  const std::size_t offset = at & (capacity - 1);
  const std::size_t first = std::min(bytes, capacity - offset);
  if (first > 0) std::memcpy(to, ring + offset, first);
  if (bytes > first) std::memcpy(static_cast<std::byte*>(to) + first, ring, bytes - first);
}

std::exception_ptr wrong_size(int source, std::int64_t tag, std::size_t sent, std::size_t wanted) {
  return std::make_exception_ptr(ConfigError(
      "[collective] receive: rank " + std::to_string(source) + " sent " + std::to_string(sent) + " bytes with tag " +
      std::to_string(tag) + ", and " + std::to_string(wanted) + " were asked for; give both sides the same size"));
}

}  // namespace

/// Precedes every message in a ring. It is written at once, so it is never partially there.
struct Mailbox::Header {
  std::int64_t tag;
  std::uint64_t bytes;
};

struct Mailbox::Request {
  Message message;
  bool is_send = false;
  Done done;
  Occasion occasion;
  Instant deadline;
  bool header_sent = false;
  std::size_t moved = 0;
  // Guarded by mutex_ like the rest.
  bool finished = false;
  std::exception_ptr error;
  int source = -1;
};

struct Mailbox::Incoming {
  bool active = false;
  Header header{};
  std::size_t moved = 0;
  RequestPointer request;       ///< null: no receive was posted for it
  std::vector<std::byte> kept;  ///< where it goes without a receive
  std::byte* to = nullptr;
  bool lost = false;  ///< its size does not fit: read and dropped
};

struct Mailbox::Kept {
  int source;
  std::int64_t tag;
  std::vector<std::byte> bytes;
};

Mailbox::Mailbox(std::shared_ptr<Region> region, int rank, bool spin)
    : region_(std::move(region)), rank_(rank), spin_(spin), sends_(region_->world()), incoming_(region_->world()) {}

Mailbox::~Mailbox() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  region_->ring_bell(rank_);
  if (thread_) thread_->join();
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    fail_all(std::make_exception_ptr(EngineError("[collective] this rank left the group before the message was done")),
             finished);
  }
  announce(finished);
}

void Mailbox::send(const Message& message) { finish(add(message, true, nullptr)); }

int Mailbox::receive(const Message& message) {
  const auto request = add(message, false, nullptr);
  finish(request);
  return request->source;
}

void Mailbox::post_send(const Message& message, Done done) {
  add(message, true, std::move(done));
  start_thread();
}

void Mailbox::post_receive(const Message& message, Done done) {
  add(message, false, std::move(done));
  start_thread();
}

void Mailbox::finish_sends(std::chrono::milliseconds within) {
  check_member(*region_, rank_);
  const Instant deadline = now() + within;
  Finished sends;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& queue : sends_) sends.insert(sends.end(), queue.begin(), queue.end());
  }
  for (const auto& request : sends) drive(request, deadline);
}

Mailbox::RequestPointer Mailbox::add(const Message& message, bool is_send, Done done) {
  check_member(*region_, rank_);
  const char* what = is_send ? "send" : "receive";
  const bool anybody = !is_send && message.peer == kAnySource && region_->world() > 1;
  if (!anybody && (message.peer < 0 || message.peer >= region_->world() || message.peer == rank_))
    throw ConfigError("[collective] " + std::string(what) + ": peer " + std::to_string(message.peer) + " of rank " +
                      std::to_string(rank_) + " in a group of " + std::to_string(region_->world()) +
                      "; name another rank of the group");
  auto request = std::make_shared<Request>();
  request->message = message;
  request->is_send = is_send;
  request->done = std::move(done);
  request->deadline = now() + message.timeout;
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    request->occasion = {what, ++number_, message.timeout};
    if (is_send) {
      sends_[message.peer].push_back(request);
    } else {
      receives_.push_back(request);
      take_kept(request, finished);
    }
    if (auto more = progress(); !more.empty()) finished.insert(finished.end(), more.begin(), more.end());
  }
  announce(finished);
  return request;
}

void Mailbox::finish(const RequestPointer& request) {
  drive(request, Instant::max());
  if (request->error) std::rethrow_exception(request->error);
}

void Mailbox::drive(const RequestPointer& request, Instant until) {
  while (true) {
    const std::uint32_t bell = region_->rank(rank_).bell.load();
    Finished finished;
    bool is_done;
    {
      const std::lock_guard lock(mutex_);
      finished = progress();
      is_done = request->finished;
    }
    announce(finished);
    if (is_done || now() >= until) return;
    sleep(bell, std::min(until, request->deadline));
  }
}

void Mailbox::start_thread() {
  const std::lock_guard lock(mutex_);
  if (!thread_) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::make_unique<std::thread>([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  region_->ring_bell(rank_);
}

void Mailbox::serve() {
  ::pthread_setname_np(::pthread_self(), "ls-mailbox");
  while (true) {
    const std::uint32_t bell = region_->rank(rank_).bell.load();
    Finished finished;
    Instant deadline;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      finished = progress();
      deadline = next_deadline();
    }
    announce(finished);
    sleep(bell, deadline);
  }
}

void Mailbox::sleep(std::uint32_t bell, Instant deadline) {
  RankWords& words = region_->rank(rank_);
  if (spin_) {
    const Instant end = now() + kMessageSpin;
    do {
      for (int i = 0; i < 64; ++i, sys::relax())
        if (words.bell.load() != bell) return;
    } while (now() < end);
  }
  words.bell_sleepers.fetch_add(1);
  if (deadline == Instant::max()) {
    futex_wait(words.bell, bell, deadline);  // there is no rank to wait for
  } else {
    // If a death is found, this bell changes.
    while (!futex_wait(words.bell, bell, std::min(deadline, now() + kDeathLook)) && now() < deadline)
      report_deaths(*region_, rank_);
  }
  words.bell_sleepers.fetch_sub(1);
}

void Mailbox::announce(const Finished& finished) {
  for (const auto& request : finished) {
    try {
      if (request->done) request->done(request->error, request->source);
    } catch (const std::exception& error) {
      log_error("[collective] the callback of a " + std::string(request->occasion.what) + " threw: " + error.what());
    } catch (...) {
      log_error("[collective] the callback of a " + std::string(request->occasion.what) + " threw");
    }
  }
}

Mailbox::Finished Mailbox::progress() {
  Finished finished;
  for (int peer = 0; peer < region_->world(); ++peer) {
    if (peer == rank_) continue;
    push(peer, finished);
    pull(peer, finished);
  }
  fail_what_cannot_be(finished);
  for (const auto& request : finished) request->finished = true;
  // Other threads of this rank may wait for requests that are now done.
  if (!finished.empty()) region_->ring_bell(rank_);
  return finished;
}

void Mailbox::push(int peer, Finished& finished) {
  auto& queue = sends_[peer];
  if (queue.empty() || region_->rank(peer).presence.load() == Presence::left) return;
  Ring& ring = region_->ring(rank_, peer);
  std::byte* bytes = region_->ring_bytes(rank_, peer);
  const std::size_t capacity = region_->shape().ring_bytes;
  const std::uint64_t start = ring.written.load(std::memory_order_relaxed);
  std::uint64_t written = start;
  while (!queue.empty()) {
    Request& request = *queue.front();
    std::size_t room = capacity - (written - ring.read.load());
    if (!request.header_sent) {
      if (room < sizeof(Header)) break;
      const Header header{request.message.tag, request.message.bytes};
      copy_to_ring(bytes, capacity, written, &header, sizeof header);
      written += sizeof header;
      room -= sizeof header;
      request.header_sent = true;
    }
    const std::size_t part = std::min(room, request.message.bytes - request.moved);
    copy_to_ring(bytes, capacity, written, static_cast<const std::byte*>(request.message.data) + request.moved, part);
    written += part;
    request.moved += part;
    ring.written.store(written);
    if (request.moved < request.message.bytes) break;
    finished.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  if (written != start) region_->ring_bell(peer);
}

void Mailbox::pull(int peer, Finished& finished) {
  Ring& ring = region_->ring(peer, rank_);
  const std::byte* bytes = region_->ring_bytes(peer, rank_);
  const std::size_t capacity = region_->shape().ring_bytes;
  Incoming& incoming = incoming_[peer];
  const std::uint64_t start = ring.read.load(std::memory_order_relaxed);
  while (incoming.active || begin_message(peer, finished)) {
    const std::uint64_t read = ring.read.load(std::memory_order_relaxed);
    const std::size_t part = std::min<std::size_t>(ring.written.load() - read, incoming.header.bytes - incoming.moved);
    if (!incoming.lost) copy_from_ring(incoming.to + incoming.moved, bytes, capacity, read, part);
    incoming.moved += part;
    ring.read.store(read + part);
    if (incoming.moved < incoming.header.bytes) break;
    if (incoming.request)
      finished.push_back(std::move(incoming.request));
    else if (!incoming.lost)
      keep({peer, incoming.header.tag, std::move(incoming.kept)}, finished);
    incoming = {};
  }
  if (ring.read.load(std::memory_order_relaxed) != start) region_->ring_bell(peer);
}

/// Takes the next header out of the ring, if there is one and a receive waits for this sender.
bool Mailbox::begin_message(int peer, Finished& finished) {
  Ring& ring = region_->ring(peer, rank_);
  const std::uint64_t read = ring.read.load(std::memory_order_relaxed);
  if (ring.written.load() - read < sizeof(Header)) return false;
  const auto from_here = [&](const RequestPointer& request) {
    return request->message.peer == peer || request->message.peer == kAnySource;
  };
  // A message without a receive stays in the ring: it blocks its sender instead of filling our memory.
  if (std::none_of(receives_.begin(), receives_.end(), from_here)) return false;
  Incoming& incoming = incoming_[peer];
  copy_from_ring(&incoming.header, region_->ring_bytes(peer, rank_), region_->shape().ring_bytes, read, sizeof(Header));
  ring.read.store(read + sizeof(Header));
  incoming.active = true;
  const auto match = std::find_if(receives_.begin(), receives_.end(), [&](const RequestPointer& request) {
    return from_here(request) && request->message.tag == incoming.header.tag;
  });
  if (match == receives_.end()) {
    incoming.kept.resize(incoming.header.bytes);
    incoming.to = incoming.kept.data();
    return true;
  }
  RequestPointer request = std::move(*match);
  receives_.erase(match);
  request->source = peer;
  if (request->message.bytes == incoming.header.bytes) {
    incoming.to = static_cast<std::byte*>(request->message.data);
    incoming.request = std::move(request);
  } else {
    request->error = wrong_size(peer, incoming.header.tag, incoming.header.bytes, request->message.bytes);
    finished.push_back(std::move(request));
    incoming.lost = true;
  }
  return true;
}

bool Mailbox::is_for(const Kept& kept, const Request& request) {
  const Message& message = request.message;
  return kept.tag == message.tag && (message.peer == kAnySource || message.peer == kept.source);
}

/// Sets a message aside, unless a receive was posted for it while it arrived.
void Mailbox::keep(Kept kept, Finished& finished) {
  const auto match = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const RequestPointer& request) { return is_for(kept, *request); });
  if (match == receives_.end()) {
    kept_.push_back(std::move(kept));
    return;
  }
  const RequestPointer request = std::move(*match);
  receives_.erase(match);
  hand_over(kept, request, finished);
}

void Mailbox::take_kept(const RequestPointer& request, Finished& finished) {
  const auto match = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return is_for(kept, *request); });
  if (match == kept_.end()) return;
  receives_.pop_back();
  hand_over(*match, request, finished);
  kept_.erase(match);
}

void Mailbox::hand_over(const Kept& kept, const RequestPointer& request, Finished& finished) {
  const Message& message = request->message;
  request->source = kept.source;
  if (kept.bytes.size() != message.bytes)
    request->error = wrong_size(kept.source, kept.tag, kept.bytes.size(), message.bytes);
  else if (message.bytes > 0)
    std::memcpy(message.data, kept.bytes.data(), message.bytes);
  request->finished = true;
  finished.push_back(request);
}

void Mailbox::fail_what_cannot_be(Finished& finished) {
  const Instant time = now();
  const auto give_up = [&](RequestPointer& request) {
    const std::exception_ptr error = request ? hopeless(*request, time) : nullptr;
    if (!error) return false;
    request->error = error;
    finished.push_back(std::move(request));
    return true;
  };
  receives_.remove_if(give_up);
  for (auto& queue : sends_) std::erase_if(queue, give_up);
  for (auto& incoming : incoming_)
    if (incoming.request && give_up(incoming.request)) incoming.lost = true;
}

/// Why a request can never complete; null if it still can.
std::exception_ptr Mailbox::hopeless(const Request& request, Instant time) {
  std::vector<int> peers;
  const bool anybody = request.message.peer == kAnySource && request.source < 0;
  for (int rank = 0; rank < region_->world(); ++rank)
    if (rank != rank_ && (anybody || rank == request.message.peer || rank == request.source)) peers.push_back(rank);
  const auto is_gone = [&](int peer) {
    return region_->rank(peer).presence.load() == Presence::left && (request.is_send || dry(peer));
  };
  try {
    if (const auto fault = region_->fault()) throw_fault(*region_, rank_, *fault, request.occasion);
    if (std::all_of(peers.begin(), peers.end(), is_gone)) throw_left(*region_, rank_, peers, request.occasion);
    if (time >= request.deadline) throw_silent(*region_, rank_, peers, request.occasion);
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

/// Whether the peer's ring is empty. If the peer was seen to have left before, everything it sent has then been read.
bool Mailbox::dry(int peer) {
  Ring& ring = region_->ring(peer, rank_);
  return ring.written.load() == ring.read.load(std::memory_order_relaxed);
}

void Mailbox::fail_all(const std::exception_ptr& error, Finished& finished) {
  const auto fail = [&](RequestPointer& request) {
    request->error = error;
    request->finished = true;
    finished.push_back(std::move(request));
  };
  for (auto& request : receives_) fail(request);
  receives_.clear();
  for (auto& queue : sends_) {
    for (auto& request : queue) fail(request);
    queue.clear();
  }
  for (auto& incoming : incoming_)
    if (incoming.request) fail(incoming.request);
}

Instant Mailbox::next_deadline() {
  Instant deadline = Instant::max();
  const auto look = [&](const RequestPointer& request) {
    if (request) deadline = std::min(deadline, request->deadline);
  };
  for (const auto& request : receives_) look(request);
  for (const auto& queue : sends_)
    for (const auto& request : queue) look(request);
  for (const auto& incoming : incoming_) look(incoming.request);
  return deadline;
}

}  // namespace lockstep::collective
