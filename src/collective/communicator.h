#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/dtype.h"
#include "collective/guardian.h"
#include "collective/mailbox.h"
#include "collective/rounds.h"
#include "collective/share_region.h"

namespace lockstep::collective {

struct CommunicatorOptions {
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);  ///< a peer that is silent for this long in a call is an error
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);  ///< the same while joining
  std::size_t slot_bytes = std::size_t{2} << 20;  ///< one of a rank's three staging slots; allocated when first used
  std::size_t ring_bytes = std::size_t{1}
                           << 17;           ///< ring for messages from one rank to another; allocated when first used
  std::optional<bool> spin = std::nullopt;  ///< none: spin if every rank has its own core
};

/// Memory that one rank sends from or receives into. The const form is only read.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// One rank's membership in a group of processes (or threads) on one machine that share memory.
///
/// Every rank must make the same calls in the same order; a call returns when this rank's part is done. Results have
/// the same bits on every rank and in every run with the same number of ranks: elements are combined in the order of
/// the ranks, whatever the sizes, the split into calls, and the staging. Inputs may be the outputs; otherwise they must
/// not overlap. Counts may be 0, and pointers may then be null. Elements must be aligned.
///
///     auto group = Communicator::join(store, rank, world);
///     group->all_reduce(gradients, gradients, count, DType::float32, ReduceOp::avg);
///
/// Errors: ConfigError for invalid arguments or arguments that differ from another rank's; EngineError if a rank died
/// (all waiting ranks notice within milliseconds) or has left although it is needed; TimeoutError if a rank was silent
/// for too long. They name the rank. After the last two kinds, and after different arguments, the group cannot be used
/// any more: every later call throws the same error. A rank that has left is not an error for calls to which it has
/// contributed.
///
/// Collectives run one at a time, in the order in which threads call them. Messages may be exchanged meanwhile.
class Communicator {
 public:
  /// Makes the group once all ranks have called it. `store` is needed only during the call. Throws CannotShareMemory on
  /// all ranks if one of them cannot take part; see share_region.h.
  static std::unique_ptr<Communicator> join(KeyValueStore& store, int rank, int world,
                                            const CommunicatorOptions& options = {});
  /// The same for threads of one process that already share the memory.
  Communicator(std::shared_ptr<Region> region, int rank, const CommunicatorOptions& options = {});
  /// Leaves the group. Does nothing in a child of fork() that has inherited the object.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return region_->world(); }
  /// Whether waits spin at first, because every rank has its own core.
  bool spins() const { return spin_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout); }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  /// Makes every call of every rank fail, now and later. Any thread may call it. Throws ConfigError in a child of
  /// fork(), as all calls do.
  void abort();

  void barrier();
  /// out = the combined elements of all ranks, on every rank.
  void all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op);
  /// The same on `root` only; `out` of others is not touched.
  void reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  /// Rank r gets the combination of all ranks' in[r].
  void reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype, ReduceOp op);
  /// Copies root's data to every rank.
  void broadcast(void* data, std::size_t bytes, int root);
  /// out[r] = rank r's input, on every rank.
  void all_gather(const void* in, std::span<void* const> out, std::size_t bytes);
  /// The same on `root` only; `out` of others is empty.
  void gather(const void* in, std::span<void* const> out, std::size_t bytes, int root);
  /// Rank r gets root's in[r]; `in` of others is empty.
  void scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root);
  /// out[r] = rank r's in[this rank]. Sizes may differ, but sender and receiver must agree on each.
  void all_to_all(std::span<const ConstBuffer> in, std::span<const Buffer> out);

  /// Messages between two ranks, with this group's timeout; `mail()` also sends and receives without waiting.
  void send(const void* data, std::size_t bytes, int to, std::int64_t tag = 0);
  /// Returns the sender's rank.
  int receive(void* data, std::size_t bytes, int from, std::int64_t tag = 0);
  Mailbox& mail() { return *mail_; }

 private:
  enum class Kind : std::uint8_t;
  template <class Body>
  void call(const Intent& intent, const Body& body);
  static Intent intent(Kind kind, std::size_t count, int root = -1);
  static Intent intent(Kind kind, std::size_t count, DType dtype, ReduceOp op, int root = -1);
  void join_group(const CommunicatorOptions& options);
  void leave();
  void check_root(int root) const;
  void check_parts(std::size_t parts, std::string_view name) const;
  Occasion occasion() const;
  void arrive();
  std::uint32_t wait();
  std::uint32_t meet();
  void compare_intents(std::uint32_t round);

  void reduce_at_once(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  void reduce_by_slices(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  void gather_to(const void* in, std::span<void* const> out, std::size_t bytes, int root);
  void exchange(std::span<const ConstBuffer> in, std::span<const Buffer> out);

  std::byte* own_slot() { return region_->slot(rank_, rounds_->next()); }

  std::shared_ptr<Region> region_;
  int rank_;
  bool spin_ = false;
  std::size_t chunk_ = 0;    ///< bytes of a slot used per round; the same on all ranks
  std::size_t at_once_ = 0;  ///< up to this size every rank reduces everything; the same on all ranks
  std::atomic<std::chrono::milliseconds> timeout_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Mailbox> mail_;

  std::mutex mutex_;  ///< guards the rest; held during a collective
  std::unique_ptr<Rounds> rounds_;
  std::exception_ptr broken_;
  std::uint64_t number_ = 0;
  Intent intent_{};
  bool compared_ = false;             ///< whether the ranks' intents were compared in this call
  std::vector<const void*> sources_;  ///< one per rank; a member so that calls allocate nothing
};

/// Splits one buffer into `parts` consecutive parts.
std::vector<void*> rows(void* data, std::size_t bytes, int parts);
std::vector<const void*> rows(const void* data, std::size_t bytes, int parts);

}  // namespace lockstep::collective
