#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "collective/links.h"

namespace lockstep::collective {

/// Messages between any two ranks of a group on several nodes, over links.
///
/// A header goes first, so that a receive learns its source and the size; it holds small messages whole. A small send
/// is done at once, as its data are copied. Each unfinished message has a thread, because links have no callbacks.
/// Messages that are sent to ranks of the same node use links too: a receive from any source must find them in one
/// place.
class LinkMail {
 public:
  /// Turns the error of a link into what the user gets.
  using Explain = std::function<std::exception_ptr(const LinkError& error, const char* what, std::uint64_t number)>;

  LinkMail(Links& links, int rank, int world, Explain explain);
  /// The links must have been aborted. Unfinished messages fail.
  ~LinkMail();
  LinkMail(const LinkMail&) = delete;
  LinkMail& operator=(const LinkMail&) = delete;

  void post_send(const Message& message, MessageDone done);
  void post_receive(const Message& message, MessageDone done);
  void finish_sends(std::chrono::milliseconds within);

  /// Channels below this are not used by messages.
  static constexpr int kFirstChannel = 16;

 private:
  struct Header;
  struct Task {
    std::thread thread;
    bool is_send = false;
    bool ended = false;
  };
  using Work = std::function<int()>;  ///< returns the source

  void check(const Message& message, bool is_send) const;
  void run(bool is_send, const char* what, std::uint64_t number, Work work, MessageDone done);
  void reap();

  Links& links_;
  int rank_;
  int world_;
  Explain explain_;
  std::mutex mutex_;  ///< guards the rest
  std::condition_variable ended_;
  std::list<Task> tasks_;
  std::uint64_t number_ = 0;
};

}  // namespace lockstep::collective
