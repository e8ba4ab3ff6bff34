#pragma once

#include <lockstep/checkpoint.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/part_writer.h"
#include "sys/shared_memory.h"
#include "wire/handover.h"
#include "wire/messages.h"
#include "worker/outbox.h"

namespace lockstep::worker {

/// Hands this rank's checkpoints to the agent, which writes them: copies each into a region of shared memory and sends
/// the agent the region's descriptor. There are two regions, which are used in turn, so whoever reports faster than the
/// agent writes waits for one. One thread copies and hands over; any thread may call the rest.
class CheckpointQueue {
 public:
  struct Options {
    std::string storage;  ///< the run directory; empty: nothing is written, and the contents go to the driver
    std::string score_attribute{};
    int persist_every = 1;        ///< only every n-th is written; the others stay in memory, which takes more regions
    bool skip_when_busy = false;  ///< a new one takes the place of one that waits to be written; needs a third region
  };
  CheckpointQueue(Options options, Outbox& outbox);

  /// Lockstep's own files of a checkpoint, by name. They replace files of these names in what the user gives.
  using OwnFiles = std::vector<std::pair<std::string, Bytes>>;
  /// Where and as what a checkpoint is written.
  struct Place {
    int report = 0;
    int seq = 0;
    std::string partial;
  };
  /// A copied checkpoint, and the message that hands it over.
  struct Copy {
    int report = 0;
    Bytes message;
    std::optional<std::size_t> region;
  };
  /// Copies `parts`. Waits for a free region. Throws the error of an earlier checkpoint, and StorageError if there is
  /// too little memory.
  Copy copy(const Place& place, const store::DictParts& parts, OwnFiles own);
  /// The same for a checkpoint that is in memory, or in a directory. A directory is written to storage before this
  /// returns. Throws, and leaves nothing behind, if it cannot be copied. Positions in it are left out: they belong to
  /// whoever saved it.
  Copy copy(const Place& place, const Checkpoint& checkpoint, OwnFiles own);
  /// Queues the message. The checkpoint is the agent's when the outbox is flushed.
  void hand_over(Copy copy);

  /// The agent's answer.
  void stored(const wire::CheckpointStored& answer);
  /// Rethrows the error of an earlier checkpoint.
  void check();
  /// Waits until everything is safe: written, or kept by the agent. Then calls check().
  void wait();
  /// Releases waiting threads and frees the memory; nothing may be added later.
  void close();

 private:
  struct Region {
    sys::SharedMemory memory;
    std::optional<int> report;  ///< what is in it, as long as the agent needs it
    bool is_safe = false;       ///< the agent has said that it has it
  };
  /// A file to copy: where it begins, and what puts its bytes there.
  struct Source {
    wire::HeldFile file;
    std::function<void(std::byte*)> put;
  };
  static void add_source(std::vector<Source>& sources, std::string name, std::span<const std::byte> bytes);
  static std::vector<Source> sources_of(const store::DictParts& parts, const OwnFiles& own);
  std::size_t free_region();
  /// Nothing if the process may not have shared memory.
  std::optional<Copy> copy_to_region(const Place& place, const std::vector<Source>& sources,
                                     std::optional<double> score);
  using Write = std::function<std::vector<FileEntry>(store::PartWriter&)>;
  wire::CheckpointWritten write_here(const Place& place, const OwnFiles& own, const Write& write) const;
  Copy write_here_or_fail_later(const Place& place, const OwnFiles& own, const Write& write,
                                std::optional<double> score);
  Copy send_contents(const Place& place, std::vector<std::pair<std::string, Bytes>> contents, OwnFiles own,
                     std::optional<double> score) const;

  const Options options_;
  Outbox& outbox_;
  std::vector<Region> regions_;  ///< of each, `report` is guarded by the mutex; the rest is the copying thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool closed_ = false;
  std::string error_;  ///< of the first checkpoint that could not be written
};

}  // namespace lockstep::worker
