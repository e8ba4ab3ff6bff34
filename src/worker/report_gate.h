#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"

namespace lockstep::worker {

/// When a report may return, and which one is this rank's last. Ranks that end early end after the same report, or
/// those that are left would wait for the others in a collective: a rank that is told to hold says after how many
/// reports it can end, and none of its later ones returns before the driver has chosen a number that all ranks can
/// keep. The function's thread reports; any thread may call the rest.
class ReportGate {
 public:
  /// `answered`: every report waits for go_on() of its number or for end_after(). `leads`: this is rank 0, which the
  /// driver answers; others wait for rank 0's report, but one that is ahead of it does not.
  ReportGate(bool answered, bool leads, int first_report)
      : answered_(answered), leads_(leads), made_(first_report), gone_on_(first_report) {}

  /// One report, from its beginning to its end.
  class Passage {
   public:
    explicit Passage(ReportGate& gate) : gate_(gate) { gate.enter(); }
    ~Passage() { gate_.leave(); }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;
    /// Runs `add`, which hands the report over. After settle() it waits for the end of the process instead.
    void accept(const std::function<void()>& add) { gate_.accept(add); }
    /// Waits until the report may return; whether the function is to end here.
    bool wait() { return gate_.wait(); }

   private:
    ReportGate& gate_;
  };

  /// From now on reports wait for end_after(). The least number of reports after which this rank can end.
  int hold();
  /// Whether hold() has been called.
  bool holds() const;
  void end_after(int reports);
  void go_on(int reports);
  /// Nothing is accepted any more; what was accepted before has been handed over when this returns.
  void settle();
  /// Nobody waits any longer.
  void open();
  /// Whether this rank has made its last report. Who asks ends by himself: wait() is false for him.
  bool is_over();

 private:
  void enter();
  void leave();
  void accept(const std::function<void()>& add);
  bool wait();
  bool has_ended() const { return end_after_ && made_ >= *end_after_; }

  const bool answered_, leads_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int made_;
  int gone_on_;
  std::optional<int> current_;  ///< the number of the report that is being made
  std::optional<int> end_after_;
  bool holds_ = false, settled_ = false, open_ = false, asked_ = false;
};

}  // namespace lockstep::worker
