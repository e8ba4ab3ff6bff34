#include "driver/run_loop.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/failures.h"
#include "driver/preemption.h"
#include "driver/rules.h"
#include "driver/run_effects.h"
#include "driver/step.h"
#include "wire/codec.h"

namespace lockstep::driver {
namespace {

/// If the loop read no messages for longer than this, `step` gets WasAway.
constexpr Seconds kShortAbsence{0.1};
/// Workers are judged only when all messages are read, but at most this long after their deadline.
constexpr auto kLongestBacklog = 60s;
/// The agent's messages are read for at most this long before other descriptors are checked.
constexpr auto kReadsFor = 50ms;
/// How often the end of the checks of checkpoints is looked for when nothing else is left to do.
constexpr auto kChecksAfter = 20ms;

/// The agent cannot start workers at all.
class CannotStart : public EngineError {
 public:
  explicit CannotStart(const std::string& why) : EngineError("[start] workers cannot be started: " + why) {}
};

/// Events in, `step`, actions out.
class RunLoop : private WorkerCalls {
 public:
  RunLoop(const RunPlan& plan, const AgentAccess& agent, Clock& clock)
      : plan_(plan), clock_(clock), effects_(plan, agent, clock), preemption_(plan.options.run.preemption) {
    state_.policy = plan.policy();
    state_.policy.reconnects = static_cast<bool>(agent.reconnect);
  }

  RunOutcome run() {
    try {
      state_.attempt = effects_.open(events_);
      effects_.agent().send(0, plan_.program.fork_server);
      handle_events();
      while (!end_) {
        wait();
        handle_events();
        const auto due = std::exchange(hooks_due_, std::nullopt);
        if (due && state_.in_hooks && state_.phase == Phase::attempting) run_hooks(*due);  // it may be over meanwhile
      }
      if (after_is_due_ && !plan_.group.keep_workers) run_hooks({state_.attempt, true});
      await_checks();
      const bool by_signal = end_->outcome == Outcome::interrupted || end_->outcome == Outcome::preempted;
      const int signal = by_signal ? signal_ : 0;
      Result result = effects_.close(*end_);
      return {std::move(result), signal, agent_usable_, effects_.take_values()};
    } catch (const std::exception& error) {
      effects_.leave(error);
      throw;
    }
  }

 private:
  void handle_events() {
    while (!events_.empty() && !end_) {
      Event event = std::move(events_.front());
      events_.pop_front();
      handle(std::move(event));
    }
  }

  /// Answers of actions are handled before all other events.
  void handle(Event event) {
    RunEffects::Answers pending;
    pending.push_back(std::move(event));
    while (!pending.empty() && !end_) {
      auto [next, actions] = step(std::move(state_), std::move(pending.front()), clock_.now());
      pending.pop_front();
      state_ = std::move(next);
      for (Failure& failure : state_.failures)
        if (failure.time == 0) failure.time = unix_seconds(clock_.wall_now());
      for (Action& action : actions) {
        effects_.act(action, pending);
        if (auto* end = std::get_if<EndRun>(&action)) end_ = std::move(*end);
        if (const auto* hooks = std::get_if<RunHooks>(&action)) hooks_due_ = *hooks;
        if (const auto* gone = std::get_if<GiveUpNode>(&action)) lose(gone->node, gone->why);
      }
    }
  }

  // ---------------------------------------------------------------- hooks

  /// Only run() calls this, between two rounds, when no event is left. A hook's call() may therefore continue the loop;
  /// it runs no other hooks meanwhile.
  void run_hooks(const RunHooks& due) {
    after_is_due_ = !due.after;
    try {
      if (due.after)
        plan_.wiring.hooks->after(*this);
      else
        plan_.wiring.hooks->before(*this, std::ranges::all_of(state_.ranks, &RankState::kept));
    } catch (const InterruptError&) {
      handle(CallbackInterrupted{});
    } catch (const std::exception& error) {
      Failure failure;
      failure.kind = FailureKind::callback;
      failure.message = "[backend] " + plan_.wiring.hooks->name() + " raised: " + error.what();
      if (!due.after) return handle(HookFailed{due.attempt, plan_.wiring.hooks->name(), std::move(failure)});
      effects_.console().warning(failure.message);
    }
    handle(HooksDone{due.attempt});
  }

  int size() const override { return static_cast<int>(state_.ranks.size()); }

  std::vector<Bytes> call(std::optional<int> rank, const Bytes& payload) override {
    std::vector<int> ranks;
    const int attempt = state_.attempt;
    const int size = this->size();
    for (int i = rank.value_or(0); i < (rank ? *rank + 1 : size); ++i) ranks.push_back(i);
    const auto can_be_called = [&](int i) {
      return i >= 0 && i < size && state_.ranks[static_cast<std::size_t>(i)].awaits_calls;
    };
    if (state_.phase == Phase::attempting && !std::ranges::all_of(ranks, can_be_called))
      throw EngineError("[WorkerGroup] " + ranks_text(ranks) + " cannot be called: there are " + std::to_string(size) +
                        " ranks, and one may have ended");
    called_.clear();
    handle(CallMade{attempt, ranks, payload});
    while (state_.phase == Phase::attempting && state_.attempt == attempt) {
      if (std::ranges::all_of(ranks, [&](int i) { return called_.contains(i); })) {
        std::vector<Bytes> values;
        for (const int i : ranks) values.push_back(std::move(called_[i]));
        return values;
      }
      wait();
      handle_events();
    }
    throw EngineError("[WorkerGroup] the workers have ended, or are being stopped: they cannot be called");
  }

  // ---------------------------------------------------------------- checks of checkpoints

  /// Waits for the checks that are left, unless the run was ended early. What ends a run ends this wait as well.
  void await_checks() {
    if (plan_.wiring.validations == nullptr) return;
    const bool waits = end_->outcome == Outcome::finished || end_->outcome == Outcome::failed;
    try {
      std::size_t left = effects_.checks_left();
      if (!waits) return;
      if (left > 0) {
        if (plan_.wiring.release) plan_.wiring.release();  // a check may need what the workers had
        effects_.console().line("lockstep: waiting for the validation of " + std::to_string(left) +
                                (left == 1 ? " checkpoint" : " checkpoints"));
      }
      // A signal that ends the checks ends the run too: it is looked for when none is left, as well.
      while (!is_ended_in_checks(left > 0) && left > 0) left = effects_.checks_left();
    } catch (const InterruptError&) {
      if (waits) end_->outcome = Outcome::interrupted;
    }
  }

  /// Whether a signal, a request or a notice says that the run is to end now. Waits a moment for one if `waits`.
  bool is_ended_in_checks(bool waits) {
    sys::SignalWatch* signals = plan_.wiring.signals;
    RunControl* control = plan_.wiring.control;
    std::array<pollfd, 3> fds{{{signals != nullptr ? signals->fd() : -1, POLLIN, 0},
                               {control != nullptr ? control->fd() : -1, POLLIN, 0},
                               {state_.preemption ? -1 : preemption_.fd(), POLLIN, 0}}};
    clock_.wait(fds, waits ? clock_.now() + kChecksAfter : clock_.now());
    const int signal = fds[0].revents != 0 ? signals->take() : 0;
    const bool is_notice = signal != 0 && is_preemption_notice(signal, plan_.options.run);
    if (is_notice || fds[2].revents != 0) {
      if (is_notice) signals->forgive(signal);
      end_->outcome = Outcome::preempted;
    } else if (signal != 0) {
      end_->outcome = Outcome::interrupted;
    }
    if (signal != 0) signal_ = signal;
    const bool is_stopped = fds[1].revents != 0 && control->take();
    return is_stopped || signal != 0 || fds[2].revents != 0;
  }

  // ---------------------------------------------------------------- waiting

  void wait() {
    note_absence();
    std::optional<Instant> until = next_deadline(state_);
    Service* service = plan_.backend.service.get();
    const auto service_due = service != nullptr ? service->deadline() : std::nullopt;
    for (const auto& other : {effects_.due(), service_due})
      if (other && (!until || *other < *until)) until = other;
    std::array<pollfd, 5> fds{{{effects_.agent().fd(), POLLIN, 0},
                               {plan_.wiring.signals != nullptr ? plan_.wiring.signals->fd() : -1, POLLIN, 0},
                               {service != nullptr ? service->fd() : -1, POLLIN, 0},
                               {plan_.wiring.control != nullptr ? plan_.wiring.control->fd() : -1, POLLIN, 0},
                               {state_.preemption ? -1 : preemption_.fd(), POLLIN, 0}}};
    if (has_more_) until = clock_.now();
    clock_.wait(fds, until);
    listened_at_ = clock_.now();
    if (fds[1].revents != 0) take_signals();
    if (fds[3].revents != 0)
      if (const auto stop = plan_.wiring.control->take()) events_.push_back(StopRequested{*stop});
    if (fds[4].revents != 0) {
      const auto notice = preemption_.take();
      notice_preemption(notice.what, notice.left);
    }
    if (fds[0].revents != 0 || has_more_) receive();
    const Instant time = clock_.now();
    if (fds[2].revents != 0 || (service_due && time >= *service_due))
      for (Event& event : service->serve(time)) events_.push_back(std::move(event));
    effects_.tend(events_);
    note_absence();
    if (const auto due = next_deadline(state_); due && time >= *due && (is_drained() || time >= *due + kLongestBacklog))
      events_.push_back(Tick{});
  }

  /// While a callback ran, no heartbeat was read: that time does not count against the workers.
  void note_absence() {
    const Instant time = clock_.now();
    const Seconds away(listened_at_ == Instant{} ? 0 : Seconds(time - listened_at_).count());
    listened_at_ = time;
    if (away > kShortAbsence) handle(WasAway{away});
  }

  /// Whether all messages of the agent are read; an unread one may be a heartbeat.
  bool is_drained() {
    pollfd item{effects_.agent().fd(), POLLIN, 0};
    return !has_more_ && ::poll(&item, 1, 0) == 0;
  }

  void take_signals() {
    while (const int signal = plan_.wiring.signals->take()) {
      signal_ = signal;
      if (is_preemption_notice(signal, plan_.options.run)) {
        plan_.wiring.signals->forgive(signal);
        notice_preemption(signal_text(signal) + " tells that the machine will be taken away");
        continue;
      }
      effects_.console().line(state_.interrupts == 0 ? "lockstep: stopping; once more to kill"
                                                     : "lockstep: killing the workers");
      events_.push_back(Interrupted{});
    }
  }

  static std::string signal_text(int signal) { return signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM"; }

  void notice_preemption(std::string why, std::optional<Seconds> left = std::nullopt, int node = 0) {
    events_.push_back(PreemptionNoticed{left.value_or(plan_.options.run.preemption_grace), std::move(why), node});
  }

  // ---------------------------------------------------------------- what agents say

  void receive() {
    const Instant until = clock_.now() + kReadsFor;
    has_more_ = false;
    try {
      // Read once; the messages become events, which are handled before more is read.
      while (auto received = effects_.agent().receive()) {
        std::visit([&](auto& each) { on(received->node, each); }, received->message);
        handle_events();
        if (end_) return;
        // Workers may report as fast as the driver records. Return, so that signals and stop requests are seen.
        if (clock_.now() >= until) {
          has_more_ = true;
          return;
        }
      }
    } catch (const CannotStart&) {
      throw;
    } catch (const Error& error) {
      lose(0, error.what());
    }
  }

  void lose(int node, std::string why) {
    if (node == 0) {
      agent_usable_ = false;
      effects_.agent().give_up();
    }
    events_.push_back(AgentLost{node, std::move(why)});
  }

  void on(int node, wire::AgentReady& m) {
    effects_.agent_ready(node, m);
    if (m.version != wire::kVersion) {
      const std::string why = "the agent on " + m.name + " uses version " + std::to_string(m.version) +
                              " of the messages, but this process uses version " + std::to_string(wire::kVersion) +
                              "; install the same Lockstep on all nodes";
      if (state_.phase == Phase::idle) throw CannotStart(why);
      Failure failure;
      failure.kind = FailureKind::node;
      failure.message = why;
      return events_.push_back(DriverFailed{std::move(failure), true});
    }
    if (node == 0) agent_usable_ = true;
    events_.push_back(AgentIsReady{node});
  }
  void on(int node, wire::AgentFailed& m) {
    if (state_.phase == Phase::idle) {
      agent_usable_ = false;
      throw CannotStart(m.message);
    }
    lose(node, effects_.on_node(node) + m.message);
  }
  void on(int node, wire::NodeLost& m) { lose(node, std::move(m.why)); }
  void on(int node, wire::Preempted& m) {
    notice_preemption(
        "node " + std::to_string(node) + " got " + signal_text(m.signal) + ", which tells that it will be taken away",
        std::nullopt, node);
  }
  void on(int, wire::KeptWorkers&) {}  // not requested by a run
  void on(int, wire::WorkerAlive& m) { events_.push_back(Alive{m.attempt, m.rank}); }
  void on(int, wire::WorkerStarted& m) { events_.push_back(WorkerStarted{m.attempt, m.rank}); }
  void on(int, wire::LogText& m) { effects_.take_output(m.rank, m.text, events_); }
  void on(int, wire::WorkerStacks& m) { events_.push_back(WorkerStacks{m.attempt, m.rank, std::move(m.text)}); }
  void on(int, wire::WorkerExited& m) {
    events_.push_back(WorkerExited{m.attempt, m.rank, m.code, m.signal, m.out_of_memory, m.stopped_by_us});
  }
  void on(int node, wire::AttemptEnded& m) { events_.push_back(AttemptEnded{m.attempt, node}); }

  // ---------------------------------------------------------------- what workers say

  void on(int, wire::FromWorker& m) {
    if (m.attempt != state_.attempt)
      return log_debug("a message of attempt " + std::to_string(m.attempt) + " is dropped");
    try {
      auto message = wire::decode<wire::WorkerToDriver>(m.message);
      std::visit([&](auto& each) { from_worker(m.attempt, m.rank, each); }, message);
    } catch (const std::exception& error) {
      events_.push_back(WorkerFailed{m.attempt, m.rank, not_understood(error)});
    }
  }
  void from_worker(int attempt, int rank, wire::WorkerReady& m) {
    effects_.worker_ready(rank, m);
    events_.push_back(WorkerRuns{attempt, rank, m.pid, m.kept});
  }
  void from_worker(int attempt, int rank, wire::Reports& m) {
    const int most = plan_.options.run.max_report_size;
    for (const wire::Report& report : m.reports)
      if (report.metrics.size() > static_cast<std::size_t>(most))
        throw wire::WireError("a report of " + human_size(static_cast<double>(report.metrics.size())) +
                              ", but at most " + human_size(most) + " are allowed");
    events_.push_back(Reported{attempt, rank, std::move(m.reports)});
  }
  void from_worker(int attempt, int rank, wire::CheckpointWritten& m) {
    if (m.persists) return effects_.persisted(attempt, m, events_);
    if (m.dropped) effects_.skipped();
    events_.push_back(PartWritten{attempt, rank, std::move(m)});
  }
  void from_worker(int attempt, int rank, wire::CheckpointWanted& m) {
    events_.push_back(CheckpointWanted{attempt, rank, m.report});
  }
  void from_worker(int, int, wire::StopWanted&) { events_.push_back(StopWanted{}); }
  void from_worker(int attempt, int rank, wire::ReportsHeld& m) {
    events_.push_back(ReportsHeld{attempt, rank, m.reports});
  }
  void from_worker(int attempt, int rank, wire::ReportsPaused& m) {
    events_.push_back(ReportsPaused{attempt, rank, m.reports});
  }
  void from_worker(int attempt, int rank, wire::Settled&) { events_.push_back(Settled{attempt, rank}); }
  void from_worker(int attempt, int rank, wire::Heartbeat& m) {
    events_.push_back(HeartBeat{attempt, rank, m.progress});
  }
  void from_worker(int attempt, int rank, wire::MeetingEntered& m) {
    events_.push_back(MeetingEntered{attempt, rank, std::move(m)});
  }
  void from_worker(int attempt, int rank, wire::CallsAwaited&) { events_.push_back(CallsAwaited{attempt, rank}); }
  void from_worker(int attempt, int rank, wire::CallDone& m) {
    called_[rank] = std::move(m.value);
    events_.push_back(CallsAwaited{attempt, rank});
  }
  void from_worker(int attempt, int rank, wire::WorkerFinished& m) {
    effects_.worker_finished(rank, std::move(m.value));
    events_.push_back(WorkerFinished{attempt, rank});
  }
  void from_worker(int attempt, int rank, wire::WorkerFailed& m) {
    Failure failure = failure_from_value(m.failure);
    failure.log_lines = effects_.last_lines(rank);
    events_.push_back(WorkerFailed{attempt, rank, std::move(failure)});
  }

  const RunPlan& plan_;
  Clock& clock_;
  RunEffects effects_;
  PreemptionWatch preemption_;
  RunState state_;
  std::deque<Event> events_;
  std::optional<EndRun> end_;
  std::optional<RunHooks> hooks_due_;
  bool after_is_due_ = false;    ///< Hooks::before has been called, and Hooks::after not yet
  std::map<int, Bytes> called_;  ///< by rank: what the call in progress has returned
  Instant listened_at_{};        ///< when messages were last read; later silence is not the workers' fault
  int signal_ = 0;
  bool has_more_ = false;  ///< receive() left messages, maybe only in its buffer
  bool agent_usable_ = true;
};

}  // namespace

RunOutcome run(const RunPlan& plan, const AgentAccess& agent, Clock& clock) {
  return RunLoop(plan, agent, clock).run();
}

RunOutcome run(const RunPlan& plan, const AgentAccess& agent) {
  Clock clock;
  return run(plan, agent, clock);
}

}  // namespace lockstep::driver
