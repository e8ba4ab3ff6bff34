#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "sys/descriptor.h"
#include "sys/futex.h"

namespace lockstep::data {

/// Memory that the ranks of one node share, so that what one has read need not be read by the others. It holds entries:
/// bytes with a key. Whoever looks for an entry that is not there claims it, and makes it; others wait, or make
/// something else meanwhile. There is no process in charge. If a rank dies while it holds the lock, the cache is broken
/// and always full; everybody then reads for themselves. It is always full in a child of fork() too. Any thread may
/// call.
class SharedCache : public std::enable_shared_from_this<SharedCache> {
 public:
  enum class Look {
    ready,    ///< the entry is there, and pinned
    claimed,  ///< the caller must publish() or abandon() it
    busy,     ///< somebody else makes it
    full      ///< there is no room for another entry
  };

  /// An entry that stays where it is as long as `hold` lives.
  struct Pinned {
    std::shared_ptr<const void> hold;
    std::span<std::byte> bytes;
  };

  /// The cache `name` of this user, with room for `capacity` bytes (the first one to join says how many); `ranks`
  /// processes use it. Its file in /dev/shm, of some 40 KB, goes when all of them have joined, or when the next cache
  /// of this user is made after they ended. Null if memory cannot be shared; the log says why.
  static std::shared_ptr<SharedCache> join(const std::string& name, int ranks, std::size_t capacity);
  ~SharedCache();
  SharedCache(const SharedCache&) = delete;
  SharedCache& operator=(const SharedCache&) = delete;

  /// How often this process has called it with this number before. Ranks that do the same things count alike, and each
  /// thing can have entries of its own.
  std::uint64_t turn(std::uint64_t number);
  Look look(std::uint64_t key, Pinned& pinned);
  /// Room for a claimed entry; empty if there is none. With `evict`, entries that nobody uses now may have to go. Room
  /// that the entry had before is free when nobody holds it.
  std::span<std::byte> room(std::uint64_t key, std::size_t size, bool evict);
  /// What keeps the room of a claimed entry where it is, also if the entry is abandoned. Null if the cache is broken.
  std::shared_ptr<const void> hold(std::uint64_t key);
  /// The claimed entry's bytes are complete. Gives the entry; nothing if the cache is broken.
  Pinned publish(std::uint64_t key);
  /// The claimed entry will not be made.
  void abandon(std::uint64_t key);
  /// This rank needs the entry no more. It goes when all ranks have said so.
  void done(std::uint64_t key);
  /// A number that goes up with every change.
  std::uint32_t changes() const;
  /// Waits until changes() is no longer `seen`, at most `timeout`. Drops claims of processes that died.
  void wait(std::uint32_t seen, std::chrono::milliseconds timeout);
  /// Whether there is room for so many bytes now.
  bool fits(std::size_t size);
  int ranks() const { return ranks_; }

 private:
  struct Entry;
  struct Header;
  class Lock;

  SharedCache(sys::Descriptor file, int ranks) : file_(std::move(file)), ranks_(ranks), owner_(::getpid()) {}
  /// False in a child of fork(), which has none of the memory.
  bool is_here() const;
  bool make(int ranks, std::size_t capacity);
  bool open_bytes();
  bool map_bytes();
  Entry* find(std::uint64_t key);
  Entry* vacant();
  Pinned pin(Entry& entry);
  void unpin(std::size_t entry);
  static void disown(Entry& entry);
  void drop_if_unused(Entry& entry);
  bool evict_one();
  std::size_t gap(std::size_t size) const;
  void changed();

  sys::Descriptor file_;  ///< marked as used as long as this lives
  int ranks_;
  int owner_;  ///< the process that joined
  Header* header_ = nullptr;
  /// A memfd, which others open in the process of its maker. It goes with the last process that uses it.
  sys::Descriptor bytes_file_;
  std::byte* bytes_ = nullptr;

  std::mutex turns_mutex_;
  std::map<std::uint64_t, std::uint64_t> turns_;
};

}  // namespace lockstep::data
