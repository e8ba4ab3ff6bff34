#pragma once

#include <linux/futex.h>
#include <lockstep/error.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "collective/intent.h"
#include "sys/descriptor.h"
#include "sys/futex.h"

namespace lockstep::collective {

using sys::futex_wait;
using sys::futex_wake;
using sys::Word;

inline constexpr std::size_t kCacheLine = 64;
inline constexpr int kMaxRanks = 1024;
/// Staging slots per rank; rounds.h explains why three.
inline constexpr std::uint32_t kSlots = 3;

/// Cores, one bit each.
using CoreSet = std::array<std::uint64_t, 16>;

enum class Presence : std::uint32_t { absent, joined, left };

/// One rank's words in shared memory. Only the rank itself writes them, except `bell`, and the bits of `life` that the
/// kernel and the watching neighbour set.
struct RankWords {
  /// A robust futex owned by the thread that lives as long as the rank's membership. The kernel sets FUTEX_OWNER_DIED
  /// in it when that thread ends in any way.
  alignas(kCacheLine) Word life{0};
  std::atomic<Presence> presence{Presence::absent};
  std::atomic<std::int32_t> pid{0};
  std::uint32_t cores_by_quota = 0;  ///< 0: the quota is not below the affinity
  CoreSet cores{};
  /// The kernel's list of the futexes that the thread owns; `life` is its only entry. It is here and not in the
  /// thread's own memory, which may be gone before the kernel reads the list (if the process is killed for lack of
  /// memory).
  robust_list_head owned{};
  robust_list owned_entry{};
  alignas(kCacheLine) Word round{0};     ///< the last round that the rank has arrived at
  std::atomic<std::int32_t> core{-1};    ///< the core it ran on then
  std::array<Intent, kSlots> intents{};  ///< by the slot of the round
  alignas(kCacheLine) Word bell{0};      ///< changed by peers: a message or room for one has arrived
  Word bell_sleepers{0};
};

/// What made the group unusable. One word, so that only the first writer sets it.
/// From `lost` on they are about a rank of another node.
enum class FaultKind : std::uint32_t { none, died, timed_out, aborted, lost, silent, gone, dropped };
struct Fault {
  FaultKind kind = FaultKind::none;
  int culprit = 0;   ///< the rank that died, was waited for, aborted, is unreachable or has left
  int reporter = 0;  ///< the rank that noticed
};

/// How errors name ranks, if the group is a part of a larger one.
struct RankNames {
  std::vector<int> numbers = {};          ///< of this group's ranks in the larger one; empty: the same
  std::vector<std::string> outside = {};  ///< all ranks of the larger one: "rank 3 (node 1, 10.0.0.2)"
};

struct GroupWords {
  std::uint64_t magic = 0;
  std::uint32_t world = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t ring_bytes = 0;
  std::array<char, 33> token{};
  alignas(kCacheLine) Word arrivals{0};  ///< of all ranks at all rounds
  alignas(kCacheLine) Word gong{0};      ///< changes when a round is complete, a rank leaves or a fault is set
  Word gong_sleepers{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> fault{0};
};

/// One direction of messages between two ranks: a ring of bytes.
struct Ring {
  alignas(kCacheLine) std::atomic<std::uint64_t> written{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> read{0};
};

/// Sizes of a group's memory.
struct RegionShape {
  int world = 1;
  std::size_t slot_bytes =
      0;  ///< staging of a rank in one round: a multiple of 64, at least 4096 and 64 for every rank and one more
  std::size_t ring_bytes = 0;  ///< ring for messages from one rank to another; a power of two
};

/// The memory that the ranks of a group share: a memfd whose size is sealed. It has no name in any file system, and is
/// freed with the last process that maps it. Pages are allocated when first used. Children of fork() do not see it. If
/// threads of one process are ranks of a group, they share one Region.
class Region {
 public:
  /// Throws ConfigError for an invalid shape, CannotShareMemory if there is not enough memory.
  static std::shared_ptr<Region> create(const RegionShape& shape);
  /// Opens the region that `address()` of a process of the same user on this machine names. Throws CannotShareMemory
  /// with the reason: another machine, another PID namespace, no access to /proc, not enough memory. Throws ConfigError
  /// for another world size.
  static std::shared_ptr<Region> open(const std::string& address, int world);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// How other processes find it, as one line of text; valid until `close_address` is called here.
  std::string address() const;
  /// Closes the descriptor that address() names; the memory stays.
  void close_address() { memory_.reset(); }

  /// The process that mapped the memory.
  int owner_pid() const { return owner_pid_; }
  /// False in a child of fork(), which must not touch the memory.
  bool is_here() const;
  /// Set before other threads use the region.
  void set_names(RankNames names) { names_ = std::move(names); }
  int number(int rank) const { return names_.numbers.empty() ? rank : names_.numbers.at(rank); }
  const std::string& outside(int number) const { return names_.outside.at(number); }
  int world() const { return shape_.world; }
  const RegionShape& shape() const { return shape_; }
  GroupWords& group() { return *group_; }
  RankWords& rank(int rank) { return ranks_[rank]; }
  /// Where `rank` puts its data in this round; slot_bytes long, page-aligned.
  std::byte* slot(int rank, std::uint32_t round);
  Ring& ring(int from, int to);
  std::byte* ring_bytes(int from, int to);

  /// Makes the group unusable, unless it already is, and wakes all waiting threads.
  void set_fault(const Fault& fault);
  std::optional<Fault> fault();
  /// Wakes all threads that wait for a round; the reason must already be visible.
  void strike_gong();
  /// Wakes threads of `rank` that wait for a message or for room.
  void ring_bell(int rank);

 private:
  Region(sys::Descriptor memory, const RegionShape& shape, bool fresh);

  RegionShape shape_;
  RankNames names_;
  sys::Descriptor memory_;
  int owner_pid_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  GroupWords* group_ = nullptr;
  RankWords* ranks_ = nullptr;
  Ring* rings_ = nullptr;
  std::byte* slots_ = nullptr;
  std::byte* ring_data_ = nullptr;
};

/// Whether ranks with these cores can all run at once, each on its own core.
bool cores_suffice(const std::vector<CoreSet>& cores);

}  // namespace lockstep::collective
