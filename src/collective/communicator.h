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
#include "collective/rendezvous.h"
#include "collective/rounds.h"

namespace lockstep::collective {

struct Options {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);      ///< how long peers may be silent in a call
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);  ///< how long they may take to join
  std::size_t slot_bytes = std::size_t{2} << 20;  ///< staging of one rank, three times; taken when first used
  std::size_t ring_bytes = std::size_t{1} << 17;  ///< mail from one rank to another; taken when first used
  std::optional<bool> spin = std::nullopt;        ///< none: when every rank has a core of its own
};

/// Memory of one rank's part. The constant form is only read.
struct Part {
  void* data = nullptr;
  std::size_t bytes = 0;
};
struct ConstPart {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// One rank's membership in a group of processes (or threads) of one machine that work on shared memory.
///
/// Every rank makes the same calls in the same order; a call returns when this rank's part is done. Results have the
/// same bits on every rank and in every run with as many ranks: elements are combined in the order of the ranks,
/// whatever the sizes, the number of calls that they come in, and the staging. Inputs may be the outputs; otherwise
/// they do not overlap. Counts may be 0, and pointers null then. Elements lie aligned.
///
///     auto group = Communicator::join(store, rank, world);
///     group->all_reduce(gradients, gradients, count, DType::float32, ReduceOp::avg);
///
/// Errors: ConfigError for arguments that cannot be or that differ from another rank's; EngineError when a rank died
/// (noticed by all that wait, within milliseconds) or has left although it is needed; TimeoutError when one was silent
/// for too long. They name the rank. After the last two kinds, and after a difference, the group is of no more use:
/// every later call throws the same error. A rank that has left is no error for calls to which it has done its part.
///
/// Collectives run one at a time, in the order in which threads ask. Mail may go on meanwhile.
class Communicator {
 public:
  /// Makes the group, when all ranks do so. `store` is needed only during the call. Throws CannotShareMemory on all
  /// ranks when one of them cannot take part: rendezvous.h says more.
  static std::unique_ptr<Communicator> join(Rendezvous& store, int rank, int world, const Options& options = {});
  /// The same for threads of one process that already share the memory.
  Communicator(std::shared_ptr<Region> region, int rank, const Options& options = {});
  /// Leaves the group. In a child of fork() that has inherited the object, nothing.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return region_->world(); }
  /// Whether waits are active at first: every rank has a core of its own.
  bool spins() const { return spin_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout); }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  /// Makes every call of every rank fail, now and later. From any thread; in a child of fork() ConfigError, like all
  /// calls.
  void abort();

  void barrier();
  /// out = the elements of all ranks combined; on every rank.
  void all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op);
  /// The same on `root` only; `out` of others is not touched.
  void reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  /// Rank r gets what all ranks' in[r] combine to.
  void reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype, ReduceOp op);
  /// Everybody's data becomes root's.
  void broadcast(void* data, std::size_t bytes, int root);
  /// out[r] = what rank r gave; on every rank.
  void all_gather(const void* in, std::span<void* const> out, std::size_t bytes);
  /// The same on `root` only; `out` of others is empty.
  void gather(const void* in, std::span<void* const> out, std::size_t bytes, int root);
  /// Rank r gets root's in[r]; `in` of others is empty.
  void scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root);
  /// out[r] = what rank r's in[this rank] was. Sizes may differ; those of a sender and its receiver agree.
  void all_to_all(std::span<const ConstPart> in, std::span<const Part> out);

  /// Messages between two ranks, with this group's timeout; `mail()` also does it without waiting.
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
  void join_group(const Options& options);
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
  void exchange(std::span<const ConstPart> in, std::span<const Part> out);

  std::byte* own_slot() { return region_->slot(rank_, rounds_->next()); }

  std::shared_ptr<Region> region_;
  int rank_;
  bool spin_ = false;
  std::size_t chunk_ = 0;    ///< how much of a slot is used in one round; the same on all ranks
  std::size_t at_once_ = 0;  ///< up to how many bytes all ranks reduce all; the same on all ranks
  std::atomic<std::chrono::milliseconds> timeout_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Mailbox> mail_;

  std::mutex mutex_;  ///< guards the rest; held during a collective
  std::unique_ptr<Rounds> rounds_;
  std::exception_ptr broken_;
  std::uint64_t number_ = 0;
  Intent intent_{};
  bool compared_ = false;             ///< the ranks' intents in this call
  std::vector<const void*> sources_;  ///< one for every rank: kept so that calls allocate nothing
};

/// The parts of one buffer that holds `parts` of them in a row.
std::vector<void*> rows(void* data, std::size_t bytes, int parts);
std::vector<const void*> rows(const void* data, std::size_t bytes, int parts);

}  // namespace lockstep::collective
