#pragma once

#include <lockstep/error.h>
#include <lockstep/session.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "store/part_writer.h"
#include "wire/channel.h"
#include "wire/messages.h"
#include "worker/checkpoint_queue.h"
#include "worker/lease_guard.h"
#include "worker/outbox.h"
#include "worker/report_gate.h"

namespace lockstep::worker {

/// The Session of a worker process, over the socket it inherited from its agent. It has two threads besides the
/// function's: one sends messages and heartbeats, one receives. If the agent is gone, the whole process group is
/// killed.
class WorkerSession : public Session {
 public:
  /// Waits for Begin and starts the heartbeats. Throws EngineError if the agent is gone.
  explicit WorkerSession(int socket);
  /// The same for a kept worker, whose next Begin has arrived.
  WorkerSession(wire::Channel channel, wire::Begin begin);
  ~WorkerSession() override;

  const wire::Begin& begin() const { return begin_; }

  /// The function is about to run.
  void start();
  /// The function returned. Waits until the agent has written its checkpoints, and everything is sent. Rethrows the
  /// error of a checkpoint.
  void finish(Bytes value);
  /// After finish() of a kept worker: waits for its next run. Returns nothing if the agent is gone. This session is
  /// over then.
  struct Next {
    std::unique_ptr<WorkerSession> session;
    Bytes payload;
  };
  std::optional<Next> wait_for_next();
  /// Where Begin asks for it: answers the driver's calls until there are no more, or the run is being stopped. What
  /// `answer` throws ends it too.
  void serve_calls(const std::function<Bytes(const Bytes& payload)>& answer);
  /// The function failed: sends what was reported before, then the failure.
  void fail(Failure failure);
  /// report() that returns whether the function must end here, instead of throwing. Without metrics it is only a
  /// checkpoint, and not a result of the run.
  bool deliver(const std::optional<Value>& metrics, const std::optional<Checkpoint>& checkpoint);
  /// The same with an encoded checkpoint; its buffers are copied before this returns.
  bool deliver(const std::optional<Value>& metrics, const store::DictParts& parts);
  /// The same without a checkpoint to write. `has_checkpoint`: the function reported one that this rank does not keep.
  bool deliver_metrics(const std::optional<Value>& metrics, bool has_checkpoint);
  /// Whether a checkpoint that this rank reports is written at all.
  bool keeps_checkpoints() const { return begin_.rank == 0 || begin_.keep_all_ranks; }

  int world_rank() const override { return begin_.rank; }
  int world_size() const override { return begin_.world_size; }
  int local_rank() const override { return begin_.local_rank; }
  int local_world_size() const override { return begin_.local_world_size; }
  int node_rank() const override { return begin_.node_rank; }
  const std::string& node_address(int rank) const override;
  /// The address of this worker's node: that by which the others reach it, if the ranks are on several nodes.
  std::string node_ip() const;
  int attempt() const override { return begin_.attempt; }
  const Value& config() const override { return begin_.config; }
  const std::string& experiment_name() const override { return begin_.experiment_name; }
  const std::string& trial_name() const override { return begin_.trial_name; }
  const std::string& trial_id() const override { return begin_.trial_id; }
  const std::string& trial_dir() const override { return begin_.run_dir; }
  std::optional<Checkpoint> checkpoint() override;
  std::optional<Value> saved_position(const std::string& dataset) override;
  void keep_position(const std::string& dataset, std::function<Value()> position) override;
  const Value& data_plan() const override { return data_plan_; }
  /// For C++ programs, before the function runs.
  void set_data_plan(Value plan) { data_plan_ = std::move(plan); }
  /// From now on every checkpoint of rank 0 has this file of Lockstep's; empty contents: no longer.
  void keep_file(const std::string& name, Bytes contents);
  void report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) override;
  void barrier(std::chrono::duration<double> timeout) override;
  Bytes broadcast_from_rank_zero(Bytes bytes, std::chrono::duration<double> timeout) override;
  void request_stop() override;
  bool should_stop() override { return gate_->is_over() || stopping_; }
  bool stopping() const override { return stopping_; }
  bool should_checkpoint() const override { return preempted_at_.load() != Instant::max(); }
  std::optional<Seconds> time_left() const override;

 private:
  /// The encoded metrics; throws if nothing can be reported any more.
  Bytes prepared(const std::optional<Value>& metrics);
  void add_report(Bytes metrics, bool with_checkpoint, bool preempted = false);
  template <class Contents>
  bool add_checkpoint(Bytes metrics, const Contents& contents);
  std::string partial_name() const;
  std::optional<Checkpoint> resumed_from() const;
  CheckpointQueue::OwnFiles own_files();
  wire::CheckpointGiven ask_for_checkpoint();
  Bytes meet(Bytes value, Seconds timeout);
  std::optional<Bytes> next_call();
  void open();
  void open_memory();
  void receive();
  void obey(wire::DriverToWorker& message);
  void check_running() const;
  void lost();

  wire::Channel channel_;
  wire::Begin begin_;
  const bool kept_ = false;
  Value data_plan_ = Value::object();
  std::optional<Checkpoint> resumed_memory_;  ///< what the attempt resumes from, if it is in shared memory
  std::exception_ptr resume_error_;           ///< or why it cannot be opened
  std::atomic<std::int64_t> progress_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<Instant> preempted_at_ = Instant::max();  ///< when the machine is taken away
  std::atomic<bool> ended_ = false;
  std::optional<Outbox> outbox_;
  std::optional<CheckpointQueue> checkpoints_;
  std::optional<ReportGate> gate_;

  // Written by the thread that reports.
  std::atomic<int> reports_ = 0;
  std::atomic<int> last_checkpoint_report_ = -1;
  int checkpoints_made_ = 0;
  Instant last_report_{};

  std::mutex keeping_;  // guards what follows
  std::optional<Value> saved_positions_;
  std::map<std::string, std::function<Value()>> positions_;
  std::map<std::string, Bytes> files_;

  std::mutex asking_;  // held while a thread asks for a checkpoint
  std::mutex mutex_;   // guards what follows
  std::condition_variable changed_;
  int meetings_ = 0;
  std::map<int, wire::MeetingDone> meetings_done_;
  std::optional<wire::CheckpointGiven> given_;
  std::optional<Bytes> call_;
  bool calls_over_ = false;

  // Written by the receiver before it ends.
  std::optional<wire::Begin> next_begin_;
  std::optional<Bytes> next_payload_;

  std::thread receiver_;
  LeaseGuard guard_;
};

}  // namespace lockstep::worker
