#pragma once

#include <lockstep/result.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/actions.h"
#include "driver/agent_link.h"
#include "driver/checkpoint_keeper.h"
#include "driver/clock.h"
#include "driver/console.h"
#include "driver/events.h"
#include "driver/node_facts.h"
#include "driver/rank_logs.h"
#include "driver/recorder.h"
#include "driver/run_book.h"
#include "driver/run_loop.h"
#include "driver/run_plan.h"

namespace lockstep::driver {

/// Carries out the actions of `step`: sends messages to agents and workers, writes the run directory, calls callbacks.
/// The result of an action is added to `answers` as an event. An action that fails does not throw; it adds the event of
/// its failure. Used by the driver's thread only.
class RunEffects {
 public:
  using Answers = std::deque<Event>;

  RunEffects(const RunPlan& plan, const AgentAccess& agent, Clock& clock);

  /// Makes the run directory, opens the files and calls on_start. Throws ConfigError or StorageError if the run cannot
  /// begin. Returns the number of the attempt before the first.
  int open(Answers& answers);
  void act(Action& action, Answers& answers);
  /// Takes what the checks of checkpoints have found, and returns how many checks are still to come. Throws
  /// InterruptError.
  std::size_t checks_left();
  /// Writes the final state, calls on_end, and returns the run's Result.
  Result close(const EndRun& end);
  /// The run ends with an exception.
  void leave(const std::exception& error) { book_.leave(error.what()); }

  /// When tend() is due.
  std::optional<Instant> due() const;
  /// Writes what has been buffered for long enough.
  void tend(Answers& answers);

  // Messages of workers and agents that need no decision:
  void agent_ready(int node, wire::AgentReady& message) {
    names_[node] = message.name;
    facts_[node] = std::move(message.facts);
  }
  /// "node a: ", for another node than the head.
  std::string on_node(int node) const;
  void take_output(int rank, const std::string& text, Answers& answers);
  void worker_ready(int rank, const wire::WorkerReady& message);
  void worker_finished(int rank, Bytes value);
  /// A checkpoint that was in memory is on disk too, but not committed there.
  void persisted(int attempt, const wire::CheckpointWritten& written, Answers& answers);
  /// A checkpoint was dropped for a later one.
  void skipped();
  std::vector<std::string> last_lines(int rank) const { return logs_->last_lines(rank); }

  AgentLink& agent() { return *agent_; }
  Console& console() { return console_; }
  /// The return values of the functions of the last attempt, by rank.
  std::vector<Bytes> take_values() { return std::move(values_); }

 private:
  /// Turns an exception of `body` into an answer.
  void guarded(Answers& answers, const std::function<void()>& body);
  void done(Reconnect&, Answers& answers);
  void done(ConfigureNode& action, Answers&);
  void done(PlaceWorkers& action, Answers& answers);
  void done(LeaveNode& action, Answers&);
  void done(LookForRoom& action, Answers& answers);
  void done(StartWorkers& action, Answers& answers);
  void done(StopWorkers& action, Answers&);
  void done(StopWorker& action, Answers&);
  void done(SettleWorker& action, Answers&);
  void done(InterruptWorker& action, Answers&);
  void done(TellPreemption& action, Answers&);
  void done(HoldReports& action, Answers&);
  void done(EndAfter& action, Answers&);
  void done(PauseReports& action, Answers&);
  void done(LetPass& action, Answers&);
  void done(GoOn& action, Answers&);
  void done(ReplaceWorker& action, Answers& answers);
  void done(KeepWorkers& action, Answers&);
  void done(TakeStacks& action, Answers&);
  void done(SaveStacks& action, Answers&);
  void done(Deliver& action, Answers& answers);
  void done(Commit& action, Answers& answers);
  void done(AnnounceCommit& action, Answers&);
  void done(GiveCheckpoint& action, Answers&);
  void done(ReleaseMeeting& action, Answers&);
  void done(RunHooks&, Answers&) {}  // the loop's
  void done(MakeCall& action, Answers&);
  void done(EndCalls& action, Answers&);
  void done(AnnounceRunning& action, Answers&);
  void done(AnnounceRank& action, Answers&);
  void done(AnnounceAway& action, Answers&);
  void done(AnnounceBack& action, Answers&);
  void done(AnnounceNeedless& action, Answers&);
  void done(AnnounceFinished& action, Answers&);
  void done(AnnounceFailure& action, Answers&);
  void done(AnnounceResize&, Answers&);
  void done(Warn& action, Answers&);
  void done(GiveUpNode&, Answers&) {}  // done by the loop, like the next one
  void done(EndRun&, Answers&) {}

  template <class M>
  void tell(int rank, const M& message);
  template <class M>
  void tell_all(const M& message);
  int node_of(int rank) const { return placement_.ranks.at(static_cast<std::size_t>(rank)).node; }
  void check_nodes() const;
  void start(const StartWorkers& action);
  Value common_begin(int attempt, const std::optional<Checkpoint>& resume) const;
  Value begin_of(Value begin, int rank) const;
  int persist_every() const;
  wire::CheckpointGiven given(const std::optional<Checkpoint>& resume) const;
  void note(Failure& failure);
  void save();
  void say(const std::string& text);
  void say_of_workers(const std::string& text);
  void alert(const std::string& text);
  int first_seq() const;
  void retain();
  void take_validations();
  void drop_partials(Outcome outcome);
  void finish_files();
  void closing(const std::function<void()>& body);
  void call_on_end(Result& result);

  const RunPlan& plan_;
  Clock& clock_;
  Service* service_;  ///< may be null
  Console console_;
  RunBook book_;
  std::function<int()> reconnect_;
  int run_;  ///< the run, in envelopes
  std::optional<AgentLink> agent_;
  CheckpointKeeper keeper_;
  std::optional<Recorder> recorder_;  ///< from open() on
  std::optional<RankLogs> logs_;      ///< likewise
  std::map<int, std::string> names_;  ///< host names of nodes, from their agents
  NodeFacts facts_;                   ///< likewise
  std::optional<Instant> save_due_;
  std::optional<Instant> validations_due_;
  int waited_in_ = -1;  ///< the last attempt that waited for nodes

  // Of the attempt:
  int attempt_ = -1;
  Placement placement_;
  std::vector<int> pids_;      ///< by rank
  std::vector<Bytes> values_;  ///< by rank
  int finished_ = 0;           ///< functions that returned
};

}  // namespace lockstep::driver
