#pragma once

#include <lockstep/error.h>
#include <lockstep/value.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/fields.h"
#include "base/file_entry.h"
#include "wire/handover.h"

/// The one contract between driver, agent and workers: every message is one of these structs, as a CBOR map in a
/// length-prefixed frame (codec.h, channel.h). `kName` is the message's name on the wire; LOCKSTEP_FIELDS lists what is
/// sent. Messages between driver and agents have an Envelope. Messages between driver and worker are carried inside
/// ToWorker and FromWorker, which name attempt and rank, so that a late message of an earlier attempt is dropped
/// unread.
///
///     driver ── Configure, StartAttempt, StopAttempt, StartWorker, StopWorker, KeepWorkers, CountKept, DumpStacks,
///     ReleaseCheckpoint, ToWorker ──► agent ── (ToWorker's inside) ──► worker
///     driver ◄─ AgentReady, AgentFailed, NodeLost, Preempted, WorkerStarted, WorkerAlive, KeptWorkers, LogText,
///     FromWorker, WorkerStacks, WorkerExited, AttemptEnded ── agent ◄── worker
namespace lockstep::wire {

inline constexpr int kVersion = 6;

/// The run and node of a message. Encoded beside the fields of every message between driver and agents, so none of
/// those may be called "run" or "node".
struct Envelope {
  int run = 0;   ///< chosen by the driver, unique in its process; the runs of one group of kept workers share it
  int node = 0;  ///< index in the engine's list of nodes, of the receiver or the sender; 0 is the head
  bool operator==(const Envelope&) const = default;
  LOCKSTEP_FIELDS(run, node);
};

/// A message and its envelope.
template <class Variant>
struct Addressed {
  Envelope envelope;
  Variant message;
};

// ---------------------------------------------------------------- driver to agent

/// The fork server from which the agent starts workers. Sent before the first attempt of a run. Runs with the same
/// program and environment share one server, which stays warm when they are over.
struct Configure {
  static constexpr const char* kName = "configure";
  std::vector<std::string> program;        ///< the fork server's command line
  std::map<std::string, std::string> env;  ///< whole environment of `program`
  std::string cwd;
  std::vector<std::string> paths;  ///< what must exist on all nodes; AgentReady says whether it does
  LOCKSTEP_FIELDS(program, env, cwd, paths);
};

/// One worker of an attempt on this node.
struct WorkerSpec {
  int rank = 0;
  Value begin;  ///< passed on to the worker as its first message (Begin)
  LOCKSTEP_FIELDS(rank, begin);
};

/// Start these ranks, all at once. `payload` reaches every worker as an inherited file descriptor (a sealed memfd).
/// Workers that KeepWorkers kept, of the same ranks, are used again: they get Begin and Payload as messages.
struct StartAttempt {
  static constexpr const char* kName = "start_attempt";
  int attempt = 0;
  std::vector<WorkerSpec> workers;
  Bytes payload;
  LOCKSTEP_FIELDS(attempt, workers, payload);
};

/// End the attempt's workers. `interrupt`: Interrupt first and SIGKILL after `grace` seconds; otherwise SIGKILL at
/// once. AttemptEnded follows, even if the attempt does not run.
struct StopAttempt {
  static constexpr const char* kName = "stop_attempt";
  int attempt = 0;
  bool interrupt = false;
  double grace = 0;
  LOCKSTEP_FIELDS(attempt, interrupt, grace);
};

/// Restart one rank of the running attempt, whose process is gone. It gets the attempt's payload.
struct StartWorker {
  static constexpr const char* kName = "start_worker";
  int attempt = 0;
  WorkerSpec worker;
  LOCKSTEP_FIELDS(attempt, worker);
};

/// SIGKILL to one rank and its children; the attempt goes on.
struct StopWorker {
  static constexpr const char* kName = "stop_worker";
  int attempt = 0, rank = 0;
  LOCKSTEP_FIELDS(attempt, rank);
};

/// All functions of the attempt have returned. Its workers, which Begin told to stay, wait for the next StartAttempt.
/// Answered by AttemptEnded, after everything that they printed.
struct KeepWorkers {
  static constexpr const char* kName = "keep_workers";
  int attempt = 0;
  LOCKSTEP_FIELDS(attempt);
};

/// Asks how many workers are kept.
struct CountKept {
  static constexpr const char* kName = "count_kept";
  LOCKSTEP_FIELDS();
};

/// Collect every worker's stacks (WorkerStacks for each, within `timeout` seconds).
struct DumpStacks {
  static constexpr const char* kName = "dump_stacks";
  int attempt = 0;
  double timeout = 2;
  LOCKSTEP_FIELDS(attempt, timeout);
};

/// A message for one rank (-1: all ranks), relayed unread.
struct ToWorker {
  static constexpr const char* kName = "to_worker";
  int attempt = 0, rank = 0;
  Bytes message;
  LOCKSTEP_FIELDS(attempt, rank, message);
};

/// This rank's part of the checkpoint of report `report` need not stay in the agent's memory any more.
struct ReleaseCheckpoint {
  static constexpr const char* kName = "release_checkpoint";
  int attempt = 0, rank = 0, report = 0;
  LOCKSTEP_FIELDS(attempt, rank, report);
};

// ---------------------------------------------------------------- agent to driver

/// The answer to Configure: workers can be started now (the fork server has imported its modules).
struct AgentReady {
  static constexpr const char* kName = "agent_ready";
  int version = kVersion, pid = 0;
  std::string name;                          ///< the node's host name
  std::map<std::string, std::string> facts;  ///< what must be the same on all nodes: versions, and whether paths exist
  LOCKSTEP_FIELDS(version, pid, name, facts);
};

/// The agent could not do what the driver asked (the fork server's imports failed, a program is missing, ...).
struct AgentFailed {
  static constexpr const char* kName = "agent_failed";
  std::string message;
  LOCKSTEP_FIELDS(message);
};

/// The head agent has lost the envelope's node, with all workers there. The loss of the head itself is the end of the
/// driver's connection.
struct NodeLost {
  static constexpr const char* kName = "node_lost";
  std::string why;
  LOCKSTEP_FIELDS(why);
};

/// The node will be taken away soon: its agent got a signal that says so.
struct Preempted {
  static constexpr const char* kName = "preempted";
  int signal = 0;
  LOCKSTEP_FIELDS(signal);
};

struct WorkerStarted {
  static constexpr const char* kName = "worker_started";
  int attempt = 0, rank = 0, pid = 0;
  LOCKSTEP_FIELDS(attempt, rank, pid);
};

/// A large message to or from this worker is still in transit, or a checkpoint that it handed over is being written
/// after its end: a sign of life. Sent at most once a second.
struct WorkerAlive {
  static constexpr const char* kName = "worker_alive";
  int attempt = 0, rank = 0;
  LOCKSTEP_FIELDS(attempt, rank);
};

/// The answer to CountKept; `lost` says how those that are not alive ended ("rank 1 was killed by signal 9").
struct KeptWorkers {
  static constexpr const char* kName = "kept_workers";
  int alive = 0;
  std::string lost;
  LOCKSTEP_FIELDS(alive, lost);
};

/// What a worker wrote to stdout or stderr, in order, not split into lines.
struct LogText {
  static constexpr const char* kName = "log_text";
  int attempt = 0, rank = 0;
  std::string text;
  LOCKSTEP_FIELDS(attempt, rank, text);
};

/// A worker's message, relayed unread.
struct FromWorker {
  static constexpr const char* kName = "from_worker";
  int attempt = 0, rank = 0;
  Bytes message;
  LOCKSTEP_FIELDS(attempt, rank, message);
};

/// Answer to DumpStacks for one rank: Python and native stacks, or why there are none (state, wait channel).
struct WorkerStacks {
  static constexpr const char* kName = "worker_stacks";
  int attempt = 0, rank = 0;
  std::string text;
  LOCKSTEP_FIELDS(attempt, rank, text);
};

/// The worker's process is gone; everything it wrote and sent came before this. `signal` is not 0 if a signal ended it;
/// otherwise `code` counts.
struct WorkerExited {
  static constexpr const char* kName = "worker_exited";
  int attempt = 0, rank = 0;
  int code = 0, signal = 0;
  bool out_of_memory = false;  ///< the kernel's OOM killer sent that SIGKILL
  bool stopped_by_us = false;  ///< it ended after StopAttempt
  LOCKSTEP_FIELDS(attempt, rank, code, signal, out_of_memory, stopped_by_us);
};

/// Every process of the attempt on this node is gone, including the workers' children; or the workers are kept.
struct AttemptEnded {
  static constexpr const char* kName = "attempt_ended";
  int attempt = 0;
  LOCKSTEP_FIELDS(attempt);
};

// ---------------------------------------------------------------- driver to worker

/// A node that has workers of an attempt.
struct PeerNode {
  std::string address;  ///< by which the workers of all nodes reach it
  int ranks = 0;        ///< how many of the attempt it has
  bool operator==(const PeerNode&) const = default;
  LOCKSTEP_FIELDS(address, ranks);
};

/// The first message of every worker: who it is and what the run is.
struct Begin {
  static constexpr const char* kName = "begin";
  int attempt = 0, rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1, node_rank = 0;
  std::vector<PeerNode> peers;  ///< by node_rank; the ranks of a node are neighbours
  std::string experiment_name, trial_name, trial_id, run_dir;
  std::string function;                        ///< registered name of a C++ function; empty in Python
  Value config;                                ///< for C++ functions and C++ readers
  std::map<std::string, std::string> env;      ///< set in the worker before anything else
  std::vector<std::string> python_path, argv;  ///< sys.path and sys.argv
  std::string cwd;
  std::string checkpoint;                                       ///< directory to resume from, or empty
  std::vector<std::pair<std::string, Bytes>> checkpoint_files;  ///< the same in memory (num_to_keep = 0)
  MemoryFiles checkpoint_memory;                                ///< the same in shared memory
  std::string storage;    ///< where `.partial` directories are made; empty: keep in memory and send
  int first_seq = 0;      ///< seq of this worker's first checkpoint
  int first_report = 0;   ///< index of its first report; not 0 when it takes the place of one that died
  int first_meeting = 0;  ///< number of its first meeting, likewise
  bool keep_all_ranks = false;
  std::string score_attribute;
  double heartbeat_interval = 1.0;
  int max_report_size = 16'000'000;  ///< most bytes of a report's metrics
  bool keep = false;                 ///< send what the function returned, and wait for the next Begin instead of ending
  bool answered = false;             ///< a report returns when GoOn or EndAfter has come for it
  int persist_every = 1;             ///< only every n-th checkpoint goes to storage; the others stay in memory
  bool skip_when_busy = false;       ///< a new checkpoint replaces one that waits to be written
  bool calls = false;                ///< wait for calls before the function, and after it unless the worker is kept
  std::map<std::string, Value> services;  ///< by name of the driver's services: what each gives this rank
  double lease = 0;                       ///< as in Lease, from the agent; 0: the worker needs none
  LOCKSTEP_FIELDS(attempt, rank, world_size, local_rank, local_world_size, node_rank, peers, experiment_name,
                  trial_name, trial_id, run_dir, function, config, env, python_path, argv, cwd, checkpoint,
                  checkpoint_files, checkpoint_memory, persist_every, skip_when_busy, storage, first_seq, first_report,
                  first_meeting, keep_all_ranks, score_attribute, heartbeat_interval, max_report_size, keep, answered,
                  calls, services, lease);
};

/// Follows the Begin of a kept worker: the payload, which other workers inherit as a file descriptor.
struct Payload {
  static constexpr const char* kName = "payload";
  Bytes payload;
  LOCKSTEP_FIELDS(payload);
};

/// All ranks have entered a meeting (barrier or broadcast), or it failed with `error`.
struct MeetingDone {
  static constexpr const char* kName = "meeting_done";
  int meeting = 0;    ///< how many this rank had entered before
  std::string error;  ///< empty: all is well
  Bytes value;        ///< rank 0's
  LOCKSTEP_FIELDS(meeting, error, value);
};

/// The answer to CheckpointWanted: the newest committed checkpoint, as a directory or (num_to_keep = 0) its files;
/// neither when this run has none.
struct CheckpointGiven {
  static constexpr const char* kName = "checkpoint_given";
  std::string path;
  std::vector<std::pair<std::string, Bytes>> files;
  MemoryFiles memory;
  LOCKSTEP_FIELDS(path, files, memory);
};

/// The run is being stopped (Ctrl-C). The worker then sends itself SIGINT. A SIGINT without this message is not from
/// the driver.
struct Interrupt {
  static constexpr const char* kName = "interrupt";
  LOCKSTEP_FIELDS();
};

/// From the agent of a node that joined the head: the worker must kill itself at this time of the machine's monotonic
/// clock, in seconds, unless another Lease has come by then. The head may then give its rank to another node.
struct Lease {
  static constexpr const char* kName = "lease";
  double until = 0;
  LOCKSTEP_FIELDS(until);
};

/// The attempt has failed: write what was reported, take no further report, and answer Settled.
struct Settle {
  static constexpr const char* kName = "settle";
  LOCKSTEP_FIELDS();
};

/// The machine, or one of the run's, will be taken away in `left` seconds. The function may report a checkpoint.
struct Preempt {
  static constexpr const char* kName = "preempt";
  double left = 0;
  LOCKSTEP_FIELDS(left);
};

/// The run will end early. Answer ReportsHeld, and let no later report return before EndAfter has come.
struct HoldReports {
  static constexpr const char* kName = "hold_reports";
  LOCKSTEP_FIELDS();
};

/// The function ends after this many reports. `restarts`: the run goes on with other workers, so the function does not
/// end by itself, even if it asks whether it should.
struct EndAfter {
  static constexpr const char* kName = "end_after";
  int reports = 0;
  bool restarts = false;
  LOCKSTEP_FIELDS(reports, restarts);
};

/// The attempt will end at the next checkpoint. Answer ReportsPaused, and let no later report return before LetPass or
/// EndAfter has come for it.
struct PauseReports {
  static constexpr const char* kName = "pause_reports";
  LOCKSTEP_FIELDS();
};

/// After PauseReports: this many reports may return; -1: all.
struct LetPass {
  static constexpr const char* kName = "let_pass";
  int reports = 0;
  LOCKSTEP_FIELDS(reports);
};

/// With Begin's `answered`: this many reports of rank 0 have been examined, and the run continues.
struct GoOn {
  static constexpr const char* kName = "go_on";
  int reports = 0;
  LOCKSTEP_FIELDS(reports);
};

/// With Begin's `calls`: call this. CallDone answers, and the worker waits for the next one.
struct Call {
  static constexpr const char* kName = "call";
  Bytes payload;  ///< a pickle
  LOCKSTEP_FIELDS(payload);
};

/// No call follows: go on.
struct CallsOver {
  static constexpr const char* kName = "calls_over";
  LOCKSTEP_FIELDS();
};

// ---------------------------------------------------------------- worker to driver

/// The session is ready and the function is about to run.
struct WorkerReady {
  static constexpr const char* kName = "worker_ready";
  int pid = 0;
  std::string hostname, node_ip;
  bool kept = false;  ///< since an earlier run
  LOCKSTEP_FIELDS(pid, hostname, node_ip, kept);
};

/// One report. `metrics` is CBOR, decoded only where it is needed. Empty: only a checkpoint, which does not count as a
/// result.
struct Report {
  int index = 0;  ///< from 0, within the attempt
  double timestamp = 0, time_this_iter = 0;
  bool has_checkpoint = false;
  Bytes metrics;
  bool preempted = false;  ///< has a checkpoint, and the worker had got Preempt when the function reported it
  auto fields() {
    return std::make_tuple(std::pair{"i", &index}, std::pair{"t", &timestamp}, std::pair{"d", &time_this_iter},
                           std::pair{"c", &has_checkpoint}, std::pair{"m", &metrics}, std::pair{"p", &preempted});
  }
};

/// All reports that were in the queue, in order.
struct Reports {
  static constexpr const char* kName = "reports";
  std::vector<Report> reports;
  LOCKSTEP_FIELDS(reports);
};

/// This rank's part of the checkpoint of report `report` is durable in `partial` (a name below the run directory),
/// or, with no storage, here in `contents`.
struct CheckpointWritten {
  static constexpr const char* kName = "checkpoint_written";
  int report = 0;
  std::string partial;
  std::vector<FileEntry> files;
  std::vector<std::pair<std::string, Bytes>> contents;
  std::optional<double> score;  ///< the score attribute's value in the checkpoint's dict, if it has one
  std::string
      memory{};  ///< the part is not in `partial` yet but in the agent's memory, which can be opened by this path
  std::vector<std::int64_t> offsets{};  ///< there, of `files`
  bool persists = false;                ///< the part of a checkpoint that was in memory is now in `partial` too
  bool dropped = false;                 ///< there is no part: a later one took its place
  LOCKSTEP_FIELDS(report, partial, files, contents, score, memory, offsets, persists, dropped);
};

/// This rank asks for the newest committed checkpoint. It waits until that of its own report `report` is committed (-1:
/// it made none).
struct CheckpointWanted {
  static constexpr const char* kName = "checkpoint_wanted";
  int report = -1;
  LOCKSTEP_FIELDS(report);
};

/// The function asks for the end of the run.
struct StopWanted {
  static constexpr const char* kName = "stop_wanted";
  LOCKSTEP_FIELDS();
};

/// The answer to HoldReports: the smallest number of reports after which this rank can end.
struct ReportsHeld {
  static constexpr const char* kName = "reports_held";
  int reports = 0;
  LOCKSTEP_FIELDS(reports);
};

/// The answer to PauseReports: the number of the report that waits or will.
struct ReportsPaused {
  static constexpr const char* kName = "reports_paused";
  int reports = 0;
  LOCKSTEP_FIELDS(reports);
};

/// The answer to Settle: everything that was reported is written, and CheckpointWritten is sent.
struct Settled {
  static constexpr const char* kName = "settled";
  LOCKSTEP_FIELDS();
};

/// Sent every heartbeat_interval, by a thread that needs no GIL. `progress` rises with reports, meetings and
/// checkpoints.
struct Heartbeat {
  static constexpr const char* kName = "heartbeat";
  std::int64_t progress = 0;
  LOCKSTEP_FIELDS(progress);
};

/// This rank waits in its n-th meeting, at most `timeout` seconds. Rank 0 may bring a value.
struct MeetingEntered {
  static constexpr const char* kName = "meeting_entered";
  int meeting = 0;
  double timeout = 0;
  Bytes value;
  LOCKSTEP_FIELDS(meeting, timeout, value);
};

/// With Begin's `calls`: this rank waits for Call or CallsOver.
struct CallsAwaited {
  static constexpr const char* kName = "calls_awaited";
  LOCKSTEP_FIELDS();
};

/// The answer to Call. What the function raised is a value too.
struct CallDone {
  static constexpr const char* kName = "call_done";
  Bytes value;  ///< a pickle
  LOCKSTEP_FIELDS(value);
};

/// The function returned and everything it reported has been sent.
struct WorkerFinished {
  static constexpr const char* kName = "worker_finished";
  Bytes value;  ///< what it returned, pickled; may be empty
  LOCKSTEP_FIELDS(value);
};

/// The function raised, or a checkpoint could not be written.
struct WorkerFailed {
  static constexpr const char* kName = "worker_failed";
  Value failure;  ///< to_value(Failure)
  LOCKSTEP_FIELDS(failure);
};

using DriverToAgent = std::variant<Configure, StartAttempt, StopAttempt, StartWorker, StopWorker, KeepWorkers,
                                   CountKept, DumpStacks, ReleaseCheckpoint, ToWorker>;
using AgentToDriver = std::variant<AgentReady, AgentFailed, NodeLost, Preempted, WorkerStarted, WorkerAlive,
                                   KeptWorkers, LogText, FromWorker, WorkerStacks, WorkerExited, AttemptEnded>;
using DriverToWorker = std::variant<Begin, Payload, MeetingDone, CheckpointGiven, Interrupt, Settle, Preempt,
                                    HoldReports, EndAfter, PauseReports, LetPass, GoOn, Call, CallsOver, Lease>;
using WorkerToDriver =
    std::variant<WorkerReady, Reports, CheckpointWritten, CheckpointWanted, StopWanted, ReportsHeld, ReportsPaused,
                 Settled, Heartbeat, MeetingEntered, CallsAwaited, CallDone, WorkerFinished, WorkerFailed>;

}  // namespace lockstep::wire
