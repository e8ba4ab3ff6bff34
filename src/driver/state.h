#pragma once

#include <lockstep/config.h>
#include <lockstep/error.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/ending.h"
#include "driver/placement.h"
#include "wire/messages.h"

namespace lockstep::driver {

/// The settings of `step`; fixed for a run.
struct Policy {
  int max_failures = 0;             ///< -1: unlimited
  bool count_node_failures = true;  ///< whether the loss of a node other than the head counts
  WorkerCount workers{};            ///< a range: the run is elastic
  Seconds resize_interval{60.0};    ///< an elastic run does not grow sooner than this after a change of its size
  bool only_deaths = false;         ///< failures of other kinds are not retried
  bool keep_all_ranks = false;
  bool keep_workers = false;     ///< for the next run, if this one succeeded
  bool replace_workers = false;  ///< a worker that dies is restarted alone, and the others continue
  bool reconnects = false;       ///< if the head agent is lost, another can be started
  bool hooks = false;            ///< Hooks run when all ranks wait for calls
  bool regroups = false;         ///< a Service reports when a replaced worker has joined the others
  Seconds heartbeat_timeout{10.0};
  std::optional<Seconds> hang_timeout;
  Seconds stacks_timeout{2.0};    ///< for the workers of a hung attempt to write their stacks
  Seconds interrupt_grace{10.0};  ///< between SIGINT and SIGKILL of the workers
  Seconds saving_time{10.0};      ///< for a failed attempt to finish checkpoints that are being written
  Seconds settling_time{2.0};     ///< the same while no such checkpoint is known
  Seconds in_step_time{5.0};  ///< for other ranks to make the report of a checkpoint that holds positions of data sets
  Seconds gone_time{30.0};    ///< an agent that has not ended killed workers after this long counts as lost
};

/// One rank of the running attempt.
struct RankState {
  bool started = false;   ///< its process exists
  bool kept = false;      ///< its process has run a function before
  bool running = false;   ///< its function runs
  bool finished = false;  ///< its function returned
  bool failed = false;    ///< it reported its failure
  bool exited = false;
  bool stopped = false;  ///< the driver ended it, without the others
  int reports = 0;       ///< the index of its next report
  int met = 0;           ///< rank 0's reports before the last meeting that this rank was in
  bool sparse = false;   ///< a checkpoint has waited for its report in vain
  /// By report: checkpoints that it announced and that are not committed yet, with the report's metrics (rank 0's).
  std::map<int, Value> announced;
  std::optional<int> wants;  ///< it waits for the checkpoint of this report
  bool awaits_calls = false;
  std::int64_t progress = 0;
  Instant last_heartbeat{};
  Instant last_progress{};
  std::string stacks;

  // For a worker that replaces one that died:
  bool replaces = false;
  bool absent = false;    ///< it has not joined the others yet
  bool away = false;      ///< absent, and the others continue without it
  bool needless = false;  ///< the others finished without it, and it is being ended
  int missed = 0;         ///< reports of the others that it has not counted
};

/// A rank's durable part of a checkpoint.
struct CheckpointPart {
  int rank = 0;
  wire::CheckpointWritten written;
  Instant time{};  ///< when the driver heard of it
};

/// Ranks that wait for each other.
struct Meeting {
  int number = 0;
  std::set<int> present;
  Instant deadline = Instant::max();
  Seconds timeout{0};
  Bytes value;  ///< rank 0's
};

/// The machine, or a node of the run, is being taken away.
struct Preemption {
  Instant deadline;
  Instant last_call;            ///< if there is no new checkpoint by then, the run ends with what it has
  std::optional<int> report{};  ///< the first of rank 0 whose checkpoint was made after its worker knew
};

/// A change of an elastic run's size. When there is room for more workers than it has, or one of its nodes will be
/// taken away, every rank pauses in its reports until rank 0 reports a checkpoint. All ranks then end after that
/// report, so that no work is repeated.
struct Growth {
  int size = 0;                   ///< of the attempt, or of the one before
  Instant allowed{};              ///< it does not grow before
  Instant look = Instant::max();  ///< when to ask again whether there is room for more

  // Of the attempt:
  bool at_checkpoint = false;         ///< it was asked because a checkpoint was committed
  bool pausing = false;               ///< the ranks were asked to pause
  std::map<int, int> paused{};        ///< by rank: the number of the report in which it waits, or will
  std::optional<int> gate{};          ///< no rank returns from this report until rank 0 has made it
  Instant patience = Instant::max();  ///< how long ranks wait there for rank 0
  bool uneven = false;                ///< they waited in vain: the attempt ends when a checkpoint is committed
  int checkpoint = 0;                 ///< the number of rank 0's latest report with a checkpoint
  bool begun = false;                 ///< the attempt ends so that one of another size can begin

  // A node of the attempt will be taken away:
  std::optional<Preemption> leaving{};
  std::string why{};  ///< it is left
  int asked = 0;      ///< how many answers are to come that say whether the others are enough; the last one counts

  void begin_attempt() { *this = Growth{size, allowed}; }
};

enum class Phase {
  idle,         ///< nothing has started yet
  placing,      ///< an attempt waits for its placement, and for the agents of its nodes
  attempting,   ///< workers start or run
  diagnosing,   ///< a rank hangs: its stacks are being taken
  saving,       ///< a failure or a stop: waits for checkpoints that are being written
  stopping,     ///< a failure, or a stop: the workers are being killed
  interrupted,  ///< Ctrl-C: the workers are asked to end
  pausing,      ///< an attempt could not be started: another one follows
  ended
};

/// Everything that the driver knows about a run.
struct RunState {
  Policy policy;
  Phase phase = Phase::idle;
  int attempt = -1;
  int failed_attempts = 0;
  std::set<int> ready;                 ///< nodes whose agents can start workers
  std::optional<Placement> placement;  ///< of this attempt, if it is known
  std::set<int> open_nodes;            ///< nodes that have not ended this attempt yet
  std::vector<RankState> ranks;
  std::vector<Failure> failures;                     ///< of this attempt, in order of arrival
  std::map<int, std::vector<CheckpointPart>> parts;  ///< by report index
  Instant parts_end = Instant::max();                ///< when the first part no longer waits for other ranks
  std::optional<int> committing;                     ///< the report whose checkpoint is being committed
  int committed = -1;  ///< the latest report of this attempt whose checkpoint is committed
  Meeting meeting;
  Ending ending;
  Saving saving;
  Growth growth;
  std::vector<int> hung;  ///< while diagnosing: the silent ranks, worst first
  FailureKind hang_kind = FailureKind::hang;
  Instant deadline = Instant::max();  ///< of `placing`, `diagnosing`, `saving`, `stopping`, `interrupted`, `pausing`
  int interrupts = 0;                 ///< signals
  bool was_interrupted = false;       ///< a failure since then stays the outcome
  bool stop_requested = false;        ///< no attempt follows, and later failures do not count
  std::optional<Preemption> preemption;
  bool lost_a_node = false;  ///< in this attempt, and not the head
  bool fatal = false;        ///< no attempt may follow
  bool warned_behind = false;
  bool in_hooks = false;   ///< Hooks run
  bool prepared = false;   ///< Hooks have run before the functions
  bool announced = false;  ///< it was announced that all ranks of the attempt run
};

}  // namespace lockstep::driver
