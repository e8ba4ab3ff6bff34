#pragma once

#include <lockstep/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/dtype.h"

namespace lockstep::collective {

/// These processes cannot share memory: they are on different machines, in different containers or of different users,
/// or there is not enough memory. The call itself is right; another backend may work.
class CannotShareMemory : public ConfigError {
  using ConfigError::ConfigError;
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

/// Receives from any source.
inline constexpr int kAnySource = -1;

/// One message, to be sent or received. The caller owns the memory, which must stay valid until the message is done.
struct Message {
  void* data = nullptr;  ///< only read if it is sent
  std::size_t bytes = 0;
  int peer = 0;          ///< receiver or sender; a receive may use kAnySource
  std::int64_t tag = 0;  ///< a message matches the first waiting receive with its source and tag
  std::chrono::milliseconds timeout{};
};

/// Called once when a message is done, from any thread, without a lock held: with the error, or with null and the
/// sender's rank. Its exceptions are logged and dropped.
using MessageDone = std::function<void(std::exception_ptr error, int source)>;

/// One rank's membership in a group of processes (or threads) that exchange data: Communicator on one machine,
/// SpanningGroup on several.
///
/// Every rank must make the same calls in the same order; a call returns when this rank's part is done. Results have
/// the same bits on every rank and in every run with the same ranks on the same number of nodes, whatever the sizes,
/// the split into calls, and the staging. Inputs may be the outputs; otherwise they must not overlap. Counts may be 0,
/// and pointers may then be null. Elements must be aligned.
///
/// Errors: ConfigError for invalid arguments or arguments that differ from another rank's; EngineError if a rank died
/// or has left although it is needed; TimeoutError if a rank was silent for too long. They name the rank. After the
/// last two kinds, and after different arguments, the group cannot be used any more: every later call throws the same
/// error. A rank that has left is not an error for calls to which it has contributed.
///
/// Collectives run one at a time, in the order in which threads call them. Messages may be exchanged meanwhile.
class Group {
 public:
  Group() = default;
  /// Leaves the group. Does nothing in a child of fork() that has inherited the object.
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  /// Makes every call of every rank fail, now and later. Any thread may call it. Throws ConfigError in a child of
  /// fork(), as all calls do.
  virtual void abort() = 0;

  virtual void barrier() = 0;
  /// out = the combined elements of all ranks, on every rank.
  virtual void all_reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op) = 0;
  /// The same on `root` only; `out` of others is not touched.
  virtual void reduce(const void* in, void* out, std::size_t count, DType dtype, ReduceOp op, int root) = 0;
  /// Rank r gets the combination of all ranks' in[r].
  virtual void reduce_scatter(std::span<const void* const> in, void* out, std::size_t count, DType dtype,
                              ReduceOp op) = 0;
  /// Copies root's data to every rank.
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// out[r] = rank r's input, on every rank.
  virtual void all_gather(const void* in, std::span<void* const> out, std::size_t bytes) = 0;
  /// The same on `root` only; `out` of others is empty.
  virtual void gather(const void* in, std::span<void* const> out, std::size_t bytes, int root) = 0;
  /// Rank r gets root's in[r]; `in` of others is empty.
  virtual void scatter(std::span<const void* const> in, void* out, std::size_t bytes, int root) = 0;
  /// out[r] = rank r's in[this rank]. Sizes may differ, but sender and receiver must agree on each.
  virtual void all_to_all(std::span<const ConstBuffer> in, std::span<const Buffer> out) = 0;

  /// Messages between two ranks, without waiting. Messages from one sender to one receiver with the same tag arrive in
  /// order; others do not wait for each other. Throws ConfigError for an invalid message.
  virtual void post_send(const Message& message, MessageDone done) = 0;
  virtual void post_receive(const Message& message, MessageDone done) = 0;
  /// Waits until all sends so far are done or have failed, but at most `within`. The rank may then leave the group, and
  /// what it sent still arrives. Other messages continue meanwhile.
  virtual void finish_sends(std::chrono::milliseconds within) = 0;
};

/// Throws ConfigError if the group has no such rank.
void check_root(const Group& group, int root);
/// Throws ConfigError unless there is one part for every rank. `name` is "input" or "output".
void check_parts(const Group& group, std::size_t parts, std::string_view name);

/// Splits one buffer into `parts` consecutive parts.
std::vector<void*> rows(void* data, std::size_t bytes, int parts);
std::vector<const void*> rows(const void* data, std::size_t bytes, int parts);

}  // namespace lockstep::collective
