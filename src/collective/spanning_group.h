#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "collective/communicator.h"
#include "collective/link_mail.h"
#include "collective/links.h"
#include "collective/nodes.h"

namespace lockstep::collective {

/// A group on several nodes: shared memory inside a node, links between nodes.
///
/// all_reduce: the ranks of a node combine their elements, each a part of them; ranks with the same place on their
/// nodes exchange and combine their part; the ranks of a node give each other the parts. If nodes have different
/// numbers of ranks, as many ranks of each node as the smallest has do so (`carriers`), and the others only give and
/// take.
///
/// Elements are combined in the order of the ranks on each node, and then in the order of the nodes. bfloat16 and
/// float16 are combined in float32 and rounded once, an average is divided once.
///
/// Nobody enters a call for data before the first ranks of all nodes have compared what they were called for.
class SpanningGroup final : public Group {
 public:
  /// `local` is this rank's membership in the group of its node, which is for this object alone.
  SpanningGroup(std::unique_ptr<Communicator> local, std::unique_ptr<Links> links, Nodes nodes, int rank,
                std::size_t chunk_bytes = std::size_t{4} << 20);
  ~SpanningGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(nodes_.node_of.size()); }
  const Nodes& nodes() const { return nodes_; }
  void set_timeout(std::chrono::milliseconds timeout) override { local_->set_timeout(timeout); }
  std::chrono::milliseconds timeout() const override { return local_->timeout(); }
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
  void post_send(const Message& message, MessageDone done) override;
  void post_receive(const Message& message, MessageDone done) override;
  void finish_sends(std::chrono::milliseconds within) override;

 private:
  struct Reduction;  ///< what the phases of all_reduce and reduce share
  struct Hello;
  struct Verdict;
  struct LastWords;
  struct Peer;

  void call(const Intent& intent, const std::function<void()>& body);
  void check_here() const;
  // The parts of every call: the first rank of each node tells the others what it was called for, and perhaps its
  // elements; then all ranks of the node learn what it heard.
  void greet(ConstBuffer payload = {});
  void agree(Buffer result = {}, const std::function<void()>& make_result = {});

  Links::Pending send(const void* data, std::size_t bytes, int peer, int channel);
  Links::Pending receive(void* data, std::size_t bytes, int peer, int channel);
  int wait(Links::Transfer& transfer);
  void wait_all(std::vector<Links::Pending>& transfers);
  [[noreturn]] void lose(const LinkError& error);
  Fault fault_of(const LinkError& error);
  void watch();
  void say_last_words(FaultKind kind, int culprit);

  void reduce_any(Reduction& job);
  void reduce_small(Reduction& job);
  void reduce_in_chunks(Reduction& job);
  void combine_on_node(Reduction& job, std::size_t chunk);
  void exchange_partials(Reduction& job, std::size_t chunk);
  void exchange_results(Reduction& job, std::size_t chunk);
  void share_on_node(Reduction& job, std::size_t chunk);
  void reduce_block(std::span<const int> targets, std::span<const void* const> in, void* out, std::size_t count,
                    DType dtype, ReduceOp op);

  int node() const { return nodes_.node_of[rank_]; }
  int place() const { return nodes_.place_of[rank_]; }
  bool leads() const { return place() == 0; }
  const std::vector<int>& neighbours() const { return nodes_.ranks[node()]; }
  /// The rank of another node that handles this rank's data there.
  int counterpart(int node) const { return nodes_.ranks[node][place() % static_cast<int>(nodes_.ranks[node].size())]; }

  std::unique_ptr<Communicator> local_;
  std::unique_ptr<Links> links_;
  const Nodes nodes_;
  const int rank_;
  const int carriers_;
  const std::size_t chunk_bytes_;
  std::unique_ptr<LinkMail> mail_;
  std::mutex last_words_;  ///< guards the next
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::atomic<bool> leaving_{false};
  std::unique_ptr<std::thread> watcher_;

  std::mutex mutex_;  ///< guards the rest; held during a collective
  std::uint64_t number_ = 0;
  Intent intent_{};
  std::vector<std::unique_ptr<Hello>> hellos_;  ///< by node; this one's is what is sent
  std::vector<Links::Pending> greetings_;       ///< sends, then receives in the order of the nodes
  std::vector<std::byte> wide_;                 ///< inputs as float32
};

}  // namespace lockstep::collective
