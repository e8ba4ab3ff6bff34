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
#include "collective/group.h"
#include "collective/region.h"

namespace lockstep::collective {

/// Messages between two ranks. Messages from one sender to one receiver with the same tag arrive in order; others do
/// not wait for each other, regardless of the order of calls on the two sides. A send is done when its bytes are in the
/// ring between the two ranks, a receive when they have arrived.
///
/// All functions may be called from any thread, also while a collective runs in another one. In a child of fork() they
/// throw ConfigError.
class Mailbox {
 public:
  using Done = MessageDone;

  Mailbox(std::shared_ptr<Region> region, int rank, bool spin);
  /// Unfinished messages fail.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Waits until it is done. Throws ConfigError for an invalid message, otherwise as faults.h says.
  void send(const Message& message);
  /// The same; returns the sender's rank. A message of another size is lost, and throws ConfigError.
  int receive(const Message& message);

  /// The same without waiting: done by a thread that the first call starts.
  void post_send(const Message& message, Done done);
  void post_receive(const Message& message, Done done);

  /// Waits until all sends so far are done or have failed, but at most `within`. The rank may then leave the group, and
  /// what it sent still arrives. Other messages continue meanwhile.
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
  /// Moves messages until this one is finished or the timeout is reached.
  void drive(const RequestPointer& request, Instant until);
  void serve();
  void start_thread();

  /// Moves what can be moved, and fails requests that can no longer complete; `mutex_` is held. Returns the finished
  /// requests.
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
  std::list<RequestPointer> receives_;             ///< not yet matched, in the order of the calls
  std::vector<Incoming> incoming_;                 ///< by sender: the message that is arriving
  std::list<Kept> kept_;                           ///< arrived before a receive was posted, in order
  std::unique_ptr<std::thread> thread_;
  bool stopping_ = false;
};

}  // namespace lockstep::collective
