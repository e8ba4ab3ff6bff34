#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "collective/links.h"

namespace lockstep::collective {

/// A network between threads of one process, for tests. Sends are copied.
class FakeNetwork {
 public:
  /// The rank's links end, as if its process were gone.
  void kill(int rank) {
    const std::lock_guard lock(mutex_);
    closed_.insert(rank);
    changed_.notify_all();
  }
  /// Nothing arrives from or at the rank any more, and nobody is told.
  void cut(int rank) {
    const std::lock_guard lock(mutex_);
    cut_.insert(rank);
  }
  /// Bytes that were sent so far.
  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  std::unique_ptr<Links> links(int rank) { return std::make_unique<Ends>(*this, rank); }

 private:
  using Key = std::tuple<int, int, int>;  ///< from, to, channel
  class Ends final : public Links {
   public:
    Ends(FakeNetwork& network, int rank) : network_(network), rank_(rank) {}
    ~Ends() override { network_.kill(rank_); }

    Pending send(const void* data, std::size_t bytes, int peer, int channel) override {
      const std::lock_guard lock(network_.mutex_);
      check(peer);
      network_.bytes_ += bytes;
      const auto* start = static_cast<const std::byte*>(data);
      if (!network_.cut_.contains(peer) && !network_.cut_.contains(rank_))
        network_.sent_[{rank_, peer, channel}].emplace_back(start, start + bytes);
      network_.changed_.notify_all();
      return std::make_unique<Sent>(peer);
    }
    Pending receive(void* data, std::size_t bytes, int peer, int channel) override {
      const std::lock_guard lock(network_.mutex_);
      if (aborted_) throw LinkError(LinkError::Kind::aborted, peer, "[fake] aborted");
      waiting_[{peer, channel}].push_back(++tickets_);
      return std::make_unique<Received>(*this, data, bytes, peer, channel, tickets_);
    }
    void abort() override {
      const std::lock_guard lock(network_.mutex_);
      aborted_ = true;
      network_.closed_.insert(rank_);
      network_.changed_.notify_all();
    }

   private:
    struct Sent final : Transfer {
      explicit Sent(int to) : peer(to) {}
      int wait(std::chrono::milliseconds) override { return peer; }
      int peer;
    };

    struct Received final : Transfer {
      Received(Ends& ends, void* to, std::size_t size, int from, int on, std::uint64_t number)
          : mine(ends), data(to), bytes(size), peer(from), channel(on), ticket(number) {}
      int wait(std::chrono::milliseconds timeout) override {
        FakeNetwork& network = mine.network_;
        std::unique_lock lock(network.mutex_);
        int source = -1;
        const bool in_time = network.changed_.wait_for(lock, timeout, [&] {
          source = mine.ready(peer, channel, ticket);
          return source >= 0 || mine.aborted_ || mine.is_closed(peer);
        });
        if (source < 0) {
          if (mine.aborted_) throw LinkError(LinkError::Kind::aborted, peer, "[fake] aborted");
          throw LinkError(in_time ? LinkError::Kind::lost : LinkError::Kind::silent, peer, "[fake] no message");
        }
        auto& queue = network.sent_[{source, mine.rank_, channel}];
        if (queue.front().size() > bytes) std::abort();  // as Gloo does
        std::memcpy(data, queue.front().data(), queue.front().size());
        queue.pop_front();
        mine.waiting_[{peer, channel}].pop_front();
        network.changed_.notify_all();
        return source;
      }
      Ends& mine;
      void* data;
      std::size_t bytes;
      int peer, channel;
      std::uint64_t ticket;
    };

    void check(int peer) {
      if (aborted_) throw LinkError(LinkError::Kind::aborted, peer, "[fake] aborted");
      if (is_closed(peer)) throw LinkError(LinkError::Kind::lost, peer, "[fake] closed");
    }
    /// Through a cut cable nobody hears that the other end was closed.
    bool is_closed(int peer) const {
      return network_.closed_.contains(peer) && !network_.cut_.contains(peer) && !network_.cut_.contains(rank_);
    }
    /// The source of a message for this receive; -1 if there is none yet. Receives are served in the order of the
    /// calls.
    int ready(int peer, int channel, std::uint64_t ticket) {
      if (waiting_[{peer, channel}].front() != ticket) return -1;
      for (auto& [key, queue] : network_.sent_)
        if (std::get<1>(key) == rank_ && std::get<2>(key) == channel &&
            (peer == kAnySource || std::get<0>(key) == peer) && !queue.empty())
          return std::get<0>(key);
      return -1;
    }

    FakeNetwork& network_;
    int rank_;
    bool aborted_ = false;
    std::uint64_t tickets_ = 0;
    std::map<std::pair<int, int>, std::deque<std::uint64_t>> waiting_;  ///< by peer and channel
  };

  std::mutex mutex_;  ///< guards the rest
  std::condition_variable changed_;
  std::set<int> closed_, cut_;
  std::map<Key, std::deque<std::vector<std::byte>>> sent_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::collective
