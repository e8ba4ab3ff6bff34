#pragma once

#include <lockstep/error.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "driver/ending.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// What `step` decides by; fixed for a run.
struct Policy {
  int world_size = 1;
  int max_failures = 0;  ///< -1: for ever
  bool keep_all_ranks = false;
  bool keep_workers = false;     ///< for the next run, when this one ended well
  bool replace_workers = false;  ///< one that dies is started again alone, and the others go on
  Seconds heartbeat_timeout{10.0};
  std::optional<Seconds> hang_timeout;
  Seconds stacks_timeout{2.0};    ///< how long a hung attempt may take to tell where it hangs
  Seconds interrupt_grace{10.0};  ///< between SIGINT and SIGKILL of the workers
  Seconds saving_time{10.0};      ///< that a failed attempt has for checkpoints under way
  Seconds settling_time{2.0};     ///< the same while none is known of
};

/// One rank of the running attempt.
struct RankState {
  int pid = 0;
  bool started = false;   ///< its process exists
  bool running = false;   ///< its function runs
  bool finished = false;  ///< its function returned
  bool failed = false;    ///< it told of its failure
  bool exited = false;
  bool stopped = false;              ///< we ended it, and it alone
  int reports = 0;                   ///< the index of its next
  std::set<int> checkpoint_reports;  ///< announced, not yet committed
  std::optional<int> wants;          ///< it waits for the checkpoint of this report
  std::int64_t progress = 0;
  Instant last_heartbeat{};
  Instant last_progress{};
  std::string stacks;
};

/// A rank's durable part of a checkpoint.
struct Part {
  int rank = 0;
  wire::CheckpointWritten written;
};

/// Ranks that wait for each other.
struct Meeting {
  int number = 0;
  std::set<int> present;
  Instant deadline = Instant::max();
  Seconds timeout{0};
  Bytes value;  ///< rank 0's
};

enum class Phase {
  idle,         ///< nothing asked yet, or between attempts
  attempting,   ///< workers start or run
  diagnosing,   ///< a rank hangs: its stacks are being taken
  saving,       ///< a failure: checkpoints under way are awaited
  stopping,     ///< a failure: the workers are being killed
  interrupted,  ///< Ctrl-C: the workers are asked to end
  ended
};

/// The whole of what the driver knows of a run.
struct RunState {
  Policy policy;
  Phase phase = Phase::idle;
  int attempt = -1;
  int failed_attempts = 0;
  std::vector<RankState> ranks;
  std::vector<Failure> failures;           ///< of this attempt, in order of arrival
  std::map<int, std::vector<Part>> parts;  ///< by report index
  int committed = -1;                      ///< the latest report of this attempt whose checkpoint is committed
  Meeting meeting;
  Ending ending;
  Saving saving;
  std::vector<int> hung;  ///< while diagnosing: the silent ranks, worst first
  FailureKind hang_kind = FailureKind::hang;
  Instant deadline = Instant::max();  ///< of `diagnosing` and `saving`
  int interrupts = 0;
  bool fatal = false;  ///< no attempt may follow
  bool warned_behind = false;
  bool announced = false;  ///< that all ranks of the attempt run
};

// ---------------------------------------------------------------- what happens

struct AgentIsReady {};
struct AgentLost {
  std::string message;
};
struct WorkerStarted {
  int attempt, rank, pid;
};
struct WorkerRuns {
  int attempt, rank, pid;
};
struct HeartBeat {
  int attempt, rank;
  std::int64_t progress;
};
/// Bytes of this rank move, though no whole message has come for some time.
struct Alive {
  int attempt, rank;
};
/// The driver did not listen for so long.
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
/// A rank or a callback asks for the end of the run.
struct StopWanted {};
/// This rank can end after so many reports, and waits before it makes more.
struct ReportsHeld {
  int attempt, rank, reports;
};
/// So many reports of rank 0 have been looked at.
struct Delivered {
  int attempt, reports;
};
/// This rank has written all that it reported.
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
struct AttemptEnded {
  int attempt;
};
/// Others wait for this rank, which will not come as long as it lives.
struct RankStuck {
  int attempt, rank;
};
/// The rank of this failure was to be replaced, but the others cannot go on. `counts`: as in ReplaceWorker.
struct CannotReplace {
  int attempt, counts;
  Failure failure;
};
/// Ctrl-C.
struct Interrupt {};
/// Something in the driver itself failed: a callback (no retry), a commit (retried as any failure).
struct DriverFailed {
  Failure failure;
  bool fatal;
};
/// Time passed; deadlines may be over.
struct Tick {};

using Event = std::variant<AgentIsReady, AgentLost, WorkerStarted, WorkerRuns, HeartBeat, Alive, WasAway, Reported,
                           PartWritten, CheckpointWanted, MeetingEntered, StopWanted, ReportsHeld, Delivered, Settled,
                           WorkerFinished, WorkerFailed, WorkerExited, WorkerStacks, AttemptEnded, RankStuck,
                           CannotReplace, Interrupt, DriverFailed, Tick>;

// ---------------------------------------------------------------- what is to be done

struct StartWorkers {
  int attempt;
};
struct StopWorkers {
  int attempt;
  bool interrupt;
  Seconds grace;
};
/// End one rank; the others go on.
struct StopWorker {
  int attempt, rank;
};
/// Have one rank write what it has reported, and take no more.
struct SettleWorker {
  int rank;
};
/// Ask a rank to end, as at Ctrl-C.
struct InterruptWorker {
  int rank;
};
/// Ask a rank after how many reports it can end.
struct HoldReports {
  int rank;
};
/// Tell a rank after how many reports it ends.
struct EndAfter {
  int rank, reports;
};
/// Tell all ranks that the run goes on after so many reports.
struct GoOn {
  int reports;
};
/// This rank's process is gone: start it again alone. `failure` tells why.
struct ReplaceWorker {
  int attempt, rank;
  int first_report, first_meeting;  ///< where the others are
  int counts;                       ///< how many failures it has taken
  Failure failure;
};
/// Every function returned: the workers stay.
struct KeepWorkers {
  int attempt;
};
struct TakeStacks {
  int attempt;
  Seconds timeout;
};
/// Keep every rank's stacks; `silent` are the ranks that hang.
struct SaveStacks {
  int attempt;
  std::vector<std::string> by_rank;
  std::vector<int> silent;
};
/// These reports count: log them.
struct Deliver {
  int rank;
  std::vector<wire::Report> reports;
};
/// All parts of a checkpoint are durable: commit it.
struct Commit {
  int report;
  std::vector<Part> parts;
};
/// Make room for the checkpoint that was just committed, and tell of it.
struct AnnounceCommit {};
/// Tell a rank which checkpoint is the newest.
struct GiveCheckpoint {
  int rank;
};
struct ReleaseMeeting {
  int rank;
  wire::MeetingDone done;
};
/// All ranks run their function.
struct AnnounceRunning {
  int attempt;
};
/// This rank's function returned: its last report has been delivered.
struct AnnounceFinished {
  int rank;
};
struct AnnounceFailure {
  std::vector<Failure> failures;
  bool again;
};
struct Warn {
  std::string message;
};
enum class Outcome { finished, failed, interrupted };
struct EndRun {
  Outcome outcome;
  std::vector<Failure> failures;
};

using Action =
    std::variant<StartWorkers, StopWorkers, StopWorker, SettleWorker, InterruptWorker, HoldReports, EndAfter, GoOn,
                 ReplaceWorker, KeepWorkers, TakeStacks, SaveStacks, Deliver, Commit, AnnounceCommit, GiveCheckpoint,
                 ReleaseMeeting, AnnounceRunning, AnnounceFinished, AnnounceFailure, Warn, EndRun>;

}  // namespace lockstep::driver
