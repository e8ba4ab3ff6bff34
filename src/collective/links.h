#pragma once

#include <lockstep/error.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::collective {

/// A transfer failed.
class LinkError : public EngineError {
 public:
  enum class Kind {
    lost,     ///< the peer's end of the connection is closed, or the network says that it cannot be reached
    silent,   ///< nothing came from it within the timeout
    aborted,  ///< abort() was called here
  };
  /// `peer` is kAnySource if it is not known.
  LinkError(Kind kind, int peer, const std::string& what) : EngineError(what), kind_(kind), peer_(peer) {}
  Kind kind() const { return kind_; }
  int peer() const { return peer_; }

 private:
  Kind kind_;
  int peer_;
};

/// Connections of this rank to ranks of other nodes. All numbers of ranks are those of the whole group.
///
/// A receive gets the next message that its peer sends on the same channel, and must expect the same number of bytes:
/// a larger message may end the process. Any thread may call the functions.
class Links {
 public:
  /// One message under way. Destroying it gives it up; its memory is not touched afterwards.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Waits until the message has arrived, or (of a send) until its memory may be reused; once. Returns the peer.
    /// Throws LinkError. After a timeout no link can be used any more.
    virtual int wait(std::chrono::milliseconds timeout) = 0;
  };
  using Pending = std::unique_ptr<Transfer>;

  virtual ~Links() = default;
  /// Do not wait. Throw LinkError if the peer is known to be lost.
  virtual Pending send(const void* data, std::size_t bytes, int peer, int channel) = 0;
  /// `peer` may be kAnySource.
  virtual Pending receive(void* data, std::size_t bytes, int peer, int channel) = 0;
  /// Every wait, present and future, ends with LinkError; once the last transfer is destroyed, all connections are
  /// closed, which the peers notice.
  virtual void abort() = 0;
};

}  // namespace lockstep::collective
