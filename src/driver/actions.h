#pragma once

#include <lockstep/error.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "driver/placement.h"
#include "driver/state.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The actions that `step` asks for, one struct each.

/// The head agent is lost: connect to another. AgentIsReady follows, or DriverFailed.
struct Reconnect {};
/// Configure the agent of this node. AgentIsReady or AgentLost follows.
struct ConfigureNode {
  int node;
};
/// Choose where the workers of an attempt run. Answered by Placed, NotPlaced or StartFailed.
struct PlaceWorkers {
  int attempt;
};
/// This node will be taken away: place no more workers there.
struct LeaveNode {
  int node;
};
/// Find out how many workers the next attempt could have. Answered by RoomFound.
struct LookForRoom {
  int attempt;
};
/// Answered by StartFailed if nothing could be started.
struct StartWorkers {
  int attempt;
  Placement placement;
};
struct StopWorkers {
  int attempt;
  std::set<int> nodes;
  bool interrupt;
  Seconds grace;
};
/// The agent of this node was told to kill its workers and does not answer. AgentLost follows.
struct GiveUpNode {
  int node;
  std::string why;
};
/// End one rank; the others continue.
struct StopWorker {
  int attempt, rank;
};
/// Make one rank write everything it has reported, and accept no more reports.
struct SettleWorker {
  int rank;
};
/// Ask a rank to end, as at Ctrl-C.
struct InterruptWorker {
  int rank;
};
/// Tell a rank that the run ends by `deadline`, because its machine is taken away.
struct TellPreemption {
  int rank;
  Instant deadline;
};
/// Ask a rank after how many reports it can end.
struct HoldReports {
  int rank;
};
/// Tell a rank after how many reports it ends. `restarts`: another attempt follows.
struct EndAfter {
  int rank, reports;
  bool restarts = false;
};
/// Let every report of a rank wait for LetPass. Answered by ReportsPaused.
struct PauseReports {
  int rank;
};
/// So many reports of each rank may return; -1: all.
struct LetPass {
  int reports;
};
/// Tell all ranks that the run continues after this many reports.
struct GoOn {
  int reports;
};
/// This rank's process is gone: restart only this rank. `failure` says why. Answered by CannotReplace if the others
/// cannot continue.
struct ReplaceWorker {
  int attempt, rank;
  int first_report, first_meeting;  ///< where the others are
  int counts;                       ///< how many failures it counts as
  bool away;                        ///< the others do not wait for it
  Failure failure;
};
/// Every function has returned; keep the workers.
struct KeepWorkers {
  int attempt;
  std::set<int> nodes;
};
struct TakeStacks {
  int attempt;
  std::set<int> nodes;
  Seconds timeout;
};
/// Keep every rank's stacks.
struct SaveStacks {
  int attempt;
  std::vector<std::string> by_rank;
};
/// These reports count: log them. Answered by Delivered.
struct Deliver {
  int rank;
  std::vector<wire::Report> reports;
};
/// All parts of a checkpoint are durable: commit it. Answered by Committed or CommitFailed.
struct Commit {
  int report;
  std::vector<CheckpointPart> parts;
  Value metrics;  ///< with which it was reported
};
/// Checkpoint `seq` was just committed: delete those that are no longer kept, and announce it.
struct AnnounceCommit {
  int seq;
};
/// Tell a rank which checkpoint is the newest.
struct GiveCheckpoint {
  int rank;
};
struct ReleaseMeeting {
  int rank;
  wire::MeetingDone done;
};
/// All ranks wait for calls: run the Hooks that come before the functions, or after them. Answered by HooksDone or
/// HookFailed.
struct RunHooks {
  int attempt;
  bool after;
};
struct MakeCall {
  int rank;
  wire::Call call;
};
/// Tell a rank that no call follows.
struct EndCalls {
  int rank;
};
/// All ranks run their function.
struct AnnounceRunning {
  int attempt;
};
/// A worker that was started alone runs its function.
struct AnnounceRank {
  int rank, pid;
};
/// The others continue without this rank until it is back; their reports do not wait for it.
struct AnnounceAway {
  int rank;
};
/// This rank was away and takes part again.
struct AnnounceBack {
  int rank;
};
/// This rank was away until the others had finished, so it is ended.
struct AnnounceNeedless {
  int rank;
};
/// This rank's function returned: its last report has been delivered.
struct AnnounceFinished {
  int rank;
  bool asked;  ///< it was asked to end
};
struct AnnounceFailure {
  std::vector<Failure> failures;
  bool again;
};
/// The attempt was ended so that one with more workers can begin.
struct AnnounceResize {
  int attempt;
};
struct Warn {
  std::string message;
};
enum class Outcome { finished, failed, interrupted, stopped, preempted };
struct EndRun {
  Outcome outcome;
  std::vector<Failure> failures;
};

using Action = std::variant<Reconnect, ConfigureNode, PlaceWorkers, LeaveNode, LookForRoom, StartWorkers, StopWorkers,
                            GiveUpNode, StopWorker, SettleWorker, InterruptWorker, TellPreemption, HoldReports,
                            EndAfter, PauseReports, LetPass, GoOn, ReplaceWorker, KeepWorkers, TakeStacks, SaveStacks,
                            Deliver, Commit, AnnounceCommit, GiveCheckpoint, ReleaseMeeting, RunHooks, MakeCall,
                            EndCalls, AnnounceRunning, AnnounceRank, AnnounceAway, AnnounceBack, AnnounceNeedless,
                            AnnounceFinished, AnnounceFailure, AnnounceResize, Warn, EndRun>;

}  // namespace lockstep::driver
