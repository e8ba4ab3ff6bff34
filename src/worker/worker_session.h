#pragma once

#include <lockstep/error.h>
#include <lockstep/session.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "store/part_writer.h"
#include "wire/channel.h"
#include "wire/messages.h"
#include "worker/checkpoint_queue.h"
#include "worker/outbox.h"
#include "worker/report_gate.h"

namespace lockstep::worker {

/// The Session of a worker process, over the socket it inherited from its agent. Three threads beside the function's
/// own: one sends and beats the heart, one receives, one writes checkpoints. When the agent is gone the whole process
/// group is killed.
class WorkerSession : public Session {
 public:
  /// Reads Begin (waits for it) and starts beating. Throws EngineError when the agent is gone.
  explicit WorkerSession(int socket);
  /// The same for a worker that was kept, whose next Begin has come.
  WorkerSession(wire::Channel channel, wire::Begin begin);
  ~WorkerSession() override;

  const wire::Begin& begin() const { return begin_; }

  /// The function is about to run.
  void start();
  /// The function returned: waits for checkpoints to be durable and everything to be sent. Rethrows what broke a
  /// checkpoint.
  void finish(Bytes value);
  /// After finish() of a worker that is kept: waits for its next run. Nothing when there will be none: the agent is
  /// gone. This session is over then.
  struct Next {
    std::unique_ptr<WorkerSession> session;
    Bytes payload;
  };
  std::optional<Next> wait_for_next();
  /// The function failed: sends what was reported before, then the failure.
  void fail(Failure failure);
  /// report(), which tells whether the function is to end here instead of throwing. Without metrics it is a checkpoint
  /// alone, and no result of the run.
  bool deliver(const std::optional<Value>& metrics, const std::optional<Checkpoint>& checkpoint);
  /// The same with a checkpoint that is taken apart already; its buffers are copied before this returns.
  bool deliver(const std::optional<Value>& metrics, const store::DictParts& parts);
  /// Whether a checkpoint that this rank reports is written at all.
  bool keeps_checkpoints() const { return begin_.rank == 0 || begin_.keep_all_ranks; }

  int world_rank() const override { return begin_.rank; }
  int world_size() const override { return begin_.world_size; }
  int local_rank() const override { return begin_.local_rank; }
  int local_world_size() const override { return begin_.local_world_size; }
  int node_rank() const override { return begin_.node_rank; }
  int attempt() const override { return begin_.attempt; }
  const Value& config() const override { return begin_.config; }
  const std::string& experiment_name() const override { return begin_.experiment_name; }
  const std::string& trial_name() const override { return begin_.trial_name; }
  const std::string& trial_id() const override { return begin_.trial_id; }
  const std::string& trial_dir() const override { return begin_.run_dir; }
  std::optional<Checkpoint> checkpoint() override;
  void report(const Value& metrics, const std::optional<Checkpoint>& checkpoint) override;
  void barrier(std::chrono::duration<double> timeout) override;
  Bytes broadcast_from_rank_zero(Bytes bytes, std::chrono::duration<double> timeout) override;
  void request_stop() override;
  bool should_stop() override { return gate_->is_over() || stopping_; }
  bool stopping() const override { return stopping_; }

 private:
  void add_report(Bytes metrics, bool with_checkpoint);
  template <class Contents>
  bool add_checkpoint(Bytes metrics, const Contents& contents);
  std::string partial_name() const;
  wire::CheckpointGiven ask_for_checkpoint();
  Bytes meet(Bytes value, Seconds timeout);
  void open();
  void receive();
  void obey(wire::DriverToWorker& message);
  void check_running() const;
  void lost();

  wire::Channel channel_;
  wire::Begin begin_;
  std::atomic<std::int64_t> progress_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> ended_ = false;
  std::optional<Outbox> outbox_;
  std::optional<CheckpointQueue> checkpoints_;
  std::optional<ReportGate> gate_;

  // Written by the thread that reports.
  std::atomic<int> reports_ = 0;
  std::atomic<int> last_checkpoint_report_ = -1;
  int checkpoints_made_ = 0;
  Instant last_report_{};

  std::mutex asking_;  // held while a thread asks for a checkpoint
  std::mutex mutex_;   // guards what follows
  std::condition_variable changed_;
  int meetings_ = 0;
  std::map<int, wire::MeetingDone> meetings_done_;
  std::optional<wire::CheckpointGiven> given_;

  // Written by the receiver before it ends.
  std::optional<wire::Begin> next_begin_;
  std::optional<Bytes> next_payload_;

  std::thread receiver_;
};

}  // namespace lockstep::worker
