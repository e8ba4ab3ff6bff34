#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/faults.h"
#include "collective/region.h"

namespace lockstep::collective {

/// Receives from whoever sends first.
inline constexpr int kAnySource = -1;

/// One message, to be sent or received. The memory stays the caller's and must live until the message is done.
struct Message {
  void* data = nullptr;  ///< only read when it is sent
  std::size_t bytes = 0;
  int peer = 0;          ///< to whom; or from whom, also kAnySource
  std::int64_t tag = 0;  ///< a message is received by the first waiting receive of its source with the same tag
  std::chrono::milliseconds timeout{};
};

/// Messages between two ranks. Those of one sender to one receiver with one tag arrive in order; others do not wait for
/// each other, whatever the order in which both sides ask for them. A send is done when its bytes are on their way (in
/// the ring between the two), a receive when they are here.
///
/// All functions may be called from any thread, also while a collective runs in another one. In a child of fork() they
/// throw ConfigError.
class Mailbox {
 public:
  /// Called once, from any thread, and not under a lock: with the error, or null and the sender's rank. What it throws
  /// is logged and goes no further.
  using Done = std::function<void(std::exception_ptr error, int source)>;

  Mailbox(std::shared_ptr<Region> region, int rank, bool spin);
  /// Messages that are under way fail.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Waits until it is done. Throws ConfigError for a message that cannot be, else as faults.h says.
  void send(const Message& message);
  /// The same; returns the sender's rank. A message of another size than asked for is lost, and ConfigError.
  int receive(const Message& message);

  /// The same without waiting: a thread that the first call starts does it.
  void post_send(const Message& message, Done done);
  void post_receive(const Message& message, Done done);

  /// Waits until all sends that have been asked for are done or have failed, but not longer than `within`. Who does so
  /// may leave the group then, and what it sent still arrives. Other messages go on meanwhile.
  void finish_sends(std::chrono::milliseconds within);

 private:
  struct Header;
  struct Request;
  using RequestPointer = std::shared_ptr<Request>;
  struct Incoming;
  struct Kept;
  using Finished = std::vector<RequestPointer>;

  RequestPointer add(const Message& message, bool is_send, Done done);
  void finish(const RequestPointer& request);
  /// Moves messages until this one is finished or the time has come.
  void drive(const RequestPointer& request, Instant until);
  void serve();
  void start_thread();

  /// Moves what can be moved, and fails what cannot be any more; `mutex_` is held. Returns what is done now.
  Finished progress();
  void push(int peer, Finished& finished);
  void pull(int peer, Finished& finished);
  bool begin_message(int peer, Finished& finished);
  void keep(Kept kept, Finished& finished);
  void take_kept(const RequestPointer& request, Finished& finished);
  static bool is_for(const Kept& kept, const Request& request);
  static void hand_over(const Kept& kept, const RequestPointer& request, Finished& finished);
  void fail_what_cannot_be(Finished& finished);
  void fail_all(const std::exception_ptr& error, Finished& finished);
  std::exception_ptr hopeless(const Request& request, Instant time);
  bool dry(int peer);
  Instant next_deadline();
  void sleep(std::uint32_t bell, Instant deadline);
  static void announce(const Finished& finished);

  std::shared_ptr<Region> region_;
  int rank_;
  bool spin_;
  std::mutex mutex_;  ///< guards the rest
  std::uint64_t number_ = 0;
  std::vector<std::deque<RequestPointer>> sends_;  ///< by receiver
  std::list<RequestPointer> receives_;             ///< not yet matched, in the order in which they were asked for
  std::vector<Incoming> incoming_;                 ///< by sender: the message that is half here
  std::list<Kept> kept_;                           ///< arrived before anybody asked, in order
  std::unique_ptr<std::thread> thread_;
  bool stopping_ = false;
};

}  // namespace lockstep::collective
