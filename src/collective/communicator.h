#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/group.h"
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
  RankNames names = {};
  std::chrono::milliseconds grace{};  ///< added to the timeout of waits in collectives
};

/// A group of processes (or threads) on one machine that share memory. Elements are combined in the order of the ranks.
/// All waiting ranks notice a death within milliseconds.
///
///     auto group = Communicator::join(store, rank, world);
///     group->all_reduce(gradients, gradients, count, DType::float32, ReduceOp::avg);
class Communicator final : public Group {
 public:
  /// Makes the group once all ranks have called it. `store` is needed only during the call. Throws CannotShareMemory on
  /// all ranks if one of them cannot take part; see share_region.h.
  static std::unique_ptr<Communicator> join(KeyValueStore& store, int rank, int world,
                                            const CommunicatorOptions& options = {});
  /// The same for threads of one process that already share the memory.
  Communicator(std::shared_ptr<Region> region, int rank, const CommunicatorOptions& options = {});
  ~Communicator() override;

  int rank() const override { return rank_; }
  int size() const override { return region_->world(); }
  /// Whether waits spin at first, because every rank has its own core.
  bool spins() const { return spin_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_.store(timeout); }
  std::chrono::milliseconds timeout() const override { return timeout_.load(); }
  void abort() override;

  void barrier() override;
  void all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op) override;
  void reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) override;
  void reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype, ReduceOp op) override;
  void broadcast(void* data, std::size_t bytes, int root) override;
  void all_gather(const void* in, std::span<void* const> out, std::size_t bytes) override;
  void gather(const void* in, std::span<void* const> out, std::size_t bytes, int root) override;
  void scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root) override;
  void all_to_all(std::span<const ConstBuffer> in, std::span<const Buffer> out) override;
  void post_send(const Message& message, MessageDone done) override { mail_->post_send(message, std::move(done)); }
  void post_receive(const Message& message, MessageDone done) override {
    mail_->post_receive(message, std::move(done));
  }
  void finish_sends(std::chrono::milliseconds within) override { mail_->finish_sends(within); }

  /// As reduce_scatter(), but rank r gets counts[r] elements. All ranks give the same counts.
  void reduce_scatter_parts(std::span<const void* const> in, void* out, std::span<const std::size_t> counts,
                            DType dtype, ReduceOp op);
  /// As all_gather(), but rank r gives bytes[r].
  void all_gather_parts(const void* in, std::span<void* const> out, std::span<const std::size_t> bytes);

  /// Makes several calls one: the ranks compare `intent` once, instead of the intent of each call in `body`.
  void together(const Intent& intent, const std::function<void()>& body);
  /// Gives the group a fault unless it has one, and throws what it has as an error.
  [[noreturn]] void fail(FaultKind kind, int culprit);
  Region& region() { return *region_; }

  /// Messages between two ranks, with this group's timeout; `mail()` also sends and receives without waiting.
  void send(const void* data, std::size_t bytes, int to, std::int64_t tag = 0);
  /// Returns the sender's rank.
  int receive(void* data, std::size_t bytes, int from, std::int64_t tag = 0);
  Mailbox& mail() { return *mail_; }

 private:
  template <class Body>
  void call(const Intent& intent, const Body& body);
  void join_group(const CommunicatorOptions& options);
  void leave();
  Occasion occasion() const;
  void arrive();
  std::uint32_t wait();
  std::uint32_t meet();
  void compare_intents(std::uint32_t round);

  void reduce_at_once(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  void reduce_by_slices(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root);
  void gather_to(const void* in, std::span<void* const> out, std::span<const std::size_t> bytes, int root);
  void exchange(std::span<const ConstBuffer> in, std::span<const Buffer> out);

  std::byte* own_slot() { return region_->slot(rank_, rounds_->next()); }

  std::shared_ptr<Region> region_;
  int rank_;
  bool spin_ = false;
  std::chrono::milliseconds grace_;
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
  bool together_ = false;             ///< in a call of together()
  bool compared_ = false;             ///< whether the ranks' intents were compared in this call
  std::vector<const void*> sources_;  ///< one per rank; a member so that calls allocate nothing
};

}  // namespace lockstep::collective
