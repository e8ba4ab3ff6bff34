#pragma once

#include <string>
#include <vector>

namespace lockstep::dashboard {

/// Something that a page may want to read again.
struct Change {
  std::string place;    ///< the id of a run or experiment: its path below the root; "." is the root itself
  std::string file;     ///< the name in it, "logs/rank_0.log"
  bool listed = false;  ///< the list of runs shows something of it
};

/// Says what changes on disk. One thread at a time calls it.
class Feed {
 public:
  virtual ~Feed() = default;
  /// Readable when take() has something; -1: nothing is watched.
  virtual int descriptor() const = 0;
  /// What has changed since the last call.
  virtual std::vector<Change> take() = 0;
  /// What no file tells, such as drivers that were killed. Called every 2 s while a page is open.
  virtual std::vector<Change> look() = 0;
  /// The places that pages look at in detail: their logs are watched, too.
  virtual void follow(const std::vector<std::string>& places) = 0;
};

}  // namespace lockstep::dashboard
