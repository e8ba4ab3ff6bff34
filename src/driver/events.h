#pragma once

#include <lockstep/error.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "driver/placement.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The events of a run, one struct each; `step` decides what to do.

/// The agent of this node can start workers.
struct AgentIsReady {
  int node = 0;
};
/// This node is gone with all its workers. If it is node 0, the head, no other node can be reached.
struct AgentLost {
  int node;
  std::string message;
};
/// Where the workers of an attempt will run.
struct Placed {
  int attempt;
  Placement placement;
};
/// The workers wait for nodes to come.
struct NotPlaced {
  int attempt;
};
/// The next attempt could have this many workers.
struct RoomFound {
  int attempt, workers;
};
/// The attempt could not be started, and none of its workers exists. `fatal`: another attempt would fail too.
struct StartFailed {
  int attempt;
  Failure failure;
  bool fatal;
};
struct WorkerStarted {
  int attempt, rank;
};
struct WorkerRuns {
  int attempt, rank, pid;
  bool kept = false;  ///< since an earlier run
};
struct HeartBeat {
  int attempt, rank;
  std::int64_t progress;
};
/// Part of a large message of this rank has moved, or of a checkpoint that it handed over before its end: a sign of
/// life.
struct Alive {
  int attempt, rank;
};
/// The driver read no messages for this long.
struct WasAway {
  Seconds time;
};
struct Reported {
  int attempt, rank;
  std::vector<wire::Report> reports;
};
struct PartWritten {
  int attempt, rank;
  wire::CheckpointWritten written;
};
struct CheckpointWanted {
  int attempt, rank, report;
};
struct MeetingEntered {
  int attempt, rank;
  wire::MeetingEntered entered;
};
/// This rank waits for calls, or for the next one.
struct CallsAwaited {
  int attempt, rank;
};
/// A hook calls on these ranks, all of which wait for calls.
struct CallMade {
  int attempt;
  std::vector<int> ranks;
  Bytes payload;
};
/// What RunHooks came to: the workers go on.
struct HooksDone {
  int attempt;
};
/// A hook raised before the functions; `hook` is its name.
struct HookFailed {
  int attempt;
  std::string hook;
  Failure failure;
};
/// A rank or a callback asks for the end of the run.
struct StopWanted {};
/// This rank can end after this many reports, and waits before it makes more.
struct ReportsHeld {
  int attempt, rank, reports;
};
/// This rank's report of this number waits, or will.
struct ReportsPaused {
  int attempt, rank, reports;
};
/// Reports of this rank went to loggers and callbacks.
struct Delivered {
  int attempt, rank;
  std::vector<std::pair<int, Value>> metrics;  ///< by report, autofilled: of rank 0's reports with a checkpoint
  bool looked_at;                              ///< the reports were checked for the end of the run
};
/// The checkpoint of this report is committed, as number `seq`.
struct Committed {
  int attempt, report, seq;
};
struct CommitFailed {
  int attempt, report;
  Failure failure;
  bool fatal;
};
/// This rank has written everything that it reported.
struct Settled {
  int attempt, rank;
};
struct WorkerFinished {
  int attempt, rank;
};
struct WorkerFailed {
  int attempt, rank;
  Failure failure;
};
struct WorkerExited {
  int attempt, rank, code, signal;
  bool out_of_memory, stopped_by_us;
};
struct WorkerStacks {
  int attempt, rank;
  std::string text;
};
/// Every process of the attempt on this node is gone, or kept.
struct AttemptEnded {
  int attempt;
  int node = 0;
};
/// Others wait for this rank, but it is stuck and will not come until it is killed.
struct RankStuck {
  int attempt, rank;
};
/// The others continue without this rank, which has not joined them yet.
struct RankLeft {
  int attempt, rank;
};
/// This rank has joined the others.
struct RankJoined {
  int attempt, rank;
};
/// All others have returned, and this rank, which is away, is no longer needed.
struct RankNeedless {
  int attempt, rank;
};
/// The rank of this failure cannot be replaced, because the others cannot continue. `counts`: as in ReplaceWorker.
struct CannotReplace {
  int attempt, counts;
  Failure failure;
};
/// Ctrl-C.
struct Interrupted {};
/// Ctrl-C ended what a callback did, such as a run of its own. The signal may come as Interrupted too, before or after.
struct CallbackInterrupted {};
/// Somebody asked to end the run, which is not a failure. `checkpoint`: first write and commit what was reported.
struct StopRequested {
  bool checkpoint;
};
/// The machine, or a node of the run, will be taken away after `grace`.
struct PreemptionNoticed {
  Seconds grace;
  std::string why;
  int node = 0;  ///< the head: all of it
};
/// Something in the driver itself failed: a callback (not retried) or a file (retried like any failure).
struct DriverFailed {
  Failure failure;
  bool fatal;
};
/// Time passed; deadlines may be reached.
struct Tick {};

using Event = std::variant<AgentIsReady, AgentLost, Placed, NotPlaced, RoomFound, StartFailed, WorkerStarted,
                           WorkerRuns, HeartBeat, Alive, WasAway, Reported, PartWritten, Committed, CommitFailed,
                           CheckpointWanted, MeetingEntered, CallsAwaited, CallMade, HooksDone, HookFailed, StopWanted,
                           ReportsHeld, ReportsPaused, Delivered, Settled, WorkerFinished, WorkerFailed, WorkerExited,
                           WorkerStacks, AttemptEnded, RankStuck, RankLeft, RankJoined, RankNeedless, CannotReplace,
                           Interrupted, CallbackInterrupted, StopRequested, PreemptionNoticed, DriverFailed, Tick>;

}  // namespace lockstep::driver
