#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/failure.h"
#include "driver/clock.h"
#include "store/hash.h"
#include "sys/sockets.h"
#include "wire/channel.h"
#include "wire/codec.h"

namespace lockstep::driver {

/// Agents and workers at the other end of a driver's socket, and the clock of that driver. All happens in the driver's
/// own thread: when it waits, the cluster answers what it was told, then does the next thing of the script, then lets
/// time pass. What it is told and how it answers by itself:
///
///     Configure      AgentReady
///     StartAttempt   WorkerStarted and WorkerReady of every rank, and CallsAwaited where it was told to wait for calls
///     StopAttempt    WorkerExited of every rank that is left, AttemptEnded
///     StopWorker     WorkerExited
///     DumpStacks     WorkerStacks
///     Settle         Settled
///     Call           CallDone, with its payload, if it `answers_calls`
class FakeCluster : public Clock {
 public:
  using Sent = std::variant<wire::DriverToAgent, wire::DriverToWorker>;

  FakeCluster() { connect(); }

  Instant now() const override { return now_; }
  WallTime wall_now() const override {
    return WallTime{} + std::chrono::duration_cast<WallTime::duration>(now_.time_since_epoch());
  }
  void wait(std::span<pollfd> fds, std::optional<Instant> until) override {
    answer();
    while (::poll(fds.data(), fds.size(), 0) == 0) {
      if (!script.empty()) {
        const auto next = std::move(script.front());
        script.pop_front();
        next();
        answer();
        if (std::exchange(passed_, false)) {
          ::poll(fds.data(), fds.size(), 0);
          return;
        }
      } else if (until) {
        now_ = std::max(now_, *until);
        return;
      } else {
        throw std::logic_error("the driver waits, and nothing is going to happen");
      }
    }
  }

  /// A new connection, the driver's end of it.
  int connect() {
    auto [driver, agent] = sys::socket_pair();
    driver_ = std::move(driver);
    agent_ = std::move(agent);
    reader_ = {};
    return driver_.get();
  }
  int socket() const { return driver_.get(); }
  /// Plays the agents of this connection instead, for a driver in another thread with a clock of its own.
  void serve(sys::Descriptor agent) {
    driver_.reset();
    agent_ = std::move(agent);
    reader_ = {};
  }
  /// Answers what the driver says, until `condition`. Returns false if that takes too long.
  bool serve_until(const std::function<bool()>& condition) {
    const Instant deadline = lockstep::now() + 30s;
    for (pollfd item{agent_.get(), POLLIN, 0}; lockstep::now() < deadline; ::poll(&item, 1, 20)) {
      answer();
      if (condition()) return true;
    }
    return false;
  }
  /// The head agent dies.
  void hang_up() { agent_.reset(); }
  /// The driver wakes up then.
  void pass(Seconds time) {
    now_ += ticks(time);
    passed_ = true;
  }

  template <class M>
  void say(const M& message, int node = 0) {
    Bytes frame;
    wire::append_message(frame, {run_, node}, message);
    if (::send(agent_.get(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size()))
      throw std::logic_error("the driver is gone");
  }
  template <class M>
  void say_of(int rank, const M& message, int attempt) {
    say(wire::FromWorker{attempt, rank, wire::encode(message)}, nodes[rank]);
  }
  template <class M>
  void say_of(int rank, const M& message) {
    say_of(rank, message, attempt);
  }

  void report(int rank, int index, const Value& metrics, bool checkpoint = false) {
    wire::Report report;
    report.index = index;
    report.has_checkpoint = checkpoint;
    report.metrics = wire::encode_value(metrics);
    say_of(rank, wire::Reports{{report}});
  }
  /// The rank writes its part of a checkpoint, one file, below `run`.
  void write(int rank, int report, const std::filesystem::path& run) {
    const std::string text = "rank " + std::to_string(rank);
    const std::string partial = "checkpoint_00000" + std::to_string(report) + ".partial";
    std::filesystem::create_directories(run / partial);
    std::ofstream(run / partial / "state") << text;
    wire::CheckpointWritten written;
    written.report = report;
    written.partial = partial;
    written.files.push_back(
        {"state", static_cast<std::int64_t>(text.size()), store::hash_of(std::as_bytes(std::span(text)))});
    say_of(rank, written);
  }
  void finish(int rank) {
    say_of(rank, wire::WorkerFinished{});
    exit(rank, 0, 0);
  }
  void kill(int rank) { exit(rank, 0, SIGKILL); }
  void exit(int rank, int code, int signal, bool by_us = false) {
    say(wire::WorkerExited{attempt, rank, code, signal, false, by_us}, nodes[rank]);
    alive.erase(rank);
    end_node(nodes[rank]);
  }
  void finish_all() {
    for (const int rank : std::set<int>(alive)) finish(rank);
  }

  /// What the driver has sent, with those for workers taken out of their ToWorker.
  template <class M>
  std::vector<M> sent() const {
    std::vector<M> found;
    for (const Sent& each : all_) {
      if (const auto* agents = std::get_if<wire::DriverToAgent>(&each)) take<M>(*agents, found);
      if (const auto* workers = std::get_if<wire::DriverToWorker>(&each)) take<M>(*workers, found);
    }
    return found;
  }

  std::deque<std::function<void()>> script;  ///< what happens, a step each time the driver waits for it
  int attempt = -1;                          ///< the latest that was started
  std::map<int, int> nodes;                  ///< by rank, of that attempt
  std::set<int> alive;                       ///< ranks
  int version = wire::kVersion;
  bool answers_calls = true;
  bool kept = false;        ///< the workers that start are those of an earlier run
  std::map<int, int> told;  ///< by node: how many attempts it started
  std::set<int> lost;       ///< nodes that hear nothing any more

  /// A node other than the head dies with its workers.
  void lose(int node, const std::string& why) {
    lost.insert(node);
    std::erase_if(alive, [&](int rank) { return nodes[rank] == node; });
    say(wire::NodeLost{why}, node);
  }

 private:
  template <class M, class Variant>
  static void take(const Variant& message, std::vector<M>& found) {
    std::visit(
        [&](const auto& each) {
          if constexpr (std::is_same_v<std::decay_t<decltype(each)>, M>) found.push_back(each);
        },
        message);
  }

  void answer() {
    std::array<std::uint8_t, 65536> chunk;
    for (ssize_t size; agent_ && (size = ::recv(agent_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT)) > 0;)
      reader_.feed(std::span(chunk).first(static_cast<std::size_t>(size)));
    while (agent_) {
      const auto frame = reader_.next();
      if (!frame) return;
      auto [envelope, message] = wire::decode_addressed<wire::DriverToAgent>(*frame);
      run_ = envelope.run;
      if (lost.contains(envelope.node)) continue;
      told[envelope.node] += std::holds_alternative<wire::StartAttempt>(message) ? 1 : 0;
      all_.push_back(message);
      const int node = envelope.node;
      std::visit([&](auto& each) { on(node, each); }, message);
    }
  }
  void on(int node, wire::Configure&) {
    wire::AgentReady ready;
    ready.version = version;
    ready.name = "node" + std::to_string(node);
    say(ready, node);
  }
  void on(int node, wire::StartAttempt& m) {
    attempt = m.attempt;
    for (const auto& worker : m.workers) {
      nodes[worker.rank] = node;
      alive.insert(worker.rank);
      say(wire::WorkerStarted{attempt, worker.rank, 100 + worker.rank}, node);
      wire::WorkerReady ready;
      ready.pid = 100 + worker.rank;
      ready.kept = kept;
      say_of(worker.rank, ready);
      if (worker.begin.at("calls") == true) say_of(worker.rank, wire::CallsAwaited{});
    }
  }
  void on(int node, wire::StopAttempt& m) {
    if (m.attempt != attempt) return say(wire::AttemptEnded{m.attempt}, node);
    bool any = false;
    for (const int rank : std::set<int>(alive)) {
      if (nodes[rank] != node) continue;
      any = true;
      exit(rank, 0, SIGKILL, true);
    }
    if (!any) end_node(node);
  }
  void on(int, wire::StopWorker& m) {
    if (alive.contains(m.rank)) exit(m.rank, 0, SIGKILL);  // "by us" is only said after StopAttempt
  }
  void on(int node, wire::DumpStacks& m) {
    for (const int rank : alive)
      if (nodes[rank] == node) say(wire::WorkerStacks{m.attempt, rank, "a stack"}, node);
  }
  void on(int, wire::ToWorker& m) {
    auto message = wire::decode<wire::DriverToWorker>(m.message);
    all_.push_back(message);
    if (std::holds_alternative<wire::Settle>(message)) say_of(m.rank, wire::Settled{});
    if (const auto* call = std::get_if<wire::Call>(&message); call != nullptr && answers_calls)
      say_of(m.rank, wire::CallDone{call->payload});
  }
  template <class M>
  void on(int, M&) {}

  void end_node(int node) {
    if (std::ranges::none_of(alive, [&](int rank) { return nodes[rank] == node; }))
      say(wire::AttemptEnded{attempt}, node);
  }

  Instant now_ = Instant{} + 1000s;
  bool passed_ = false;
  int run_ = 0;  ///< the id of the driver's run
  sys::Descriptor driver_, agent_;
  wire::FrameReader reader_;
  std::vector<Sent> all_;
};

}  // namespace lockstep::driver
