#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"

namespace lockstep::worker {

/// Decides when a report may return, and which report is this rank's last. When a run ends early, all ranks must end
/// after the same report; otherwise the remaining ranks would wait for the others in a collective. So a rank that is
/// told to hold says after how many reports it can end, and no later report returns before the driver has chosen a
/// number that suits all ranks. The function's thread reports; any thread may call the rest.
class ReportGate {
 public:
  /// `answered`: every report waits for go_on() with its number or for end_after(). `leads`: this is rank 0, which the
  /// driver answers. Other ranks wait for rank 0's report, unless they are ahead of it.
  ReportGate(bool answered, bool leads, int first_report)
      : answered_(answered), leads_(leads), made_(first_report), gone_on_(first_report) {}

  /// One report, from start to end.
  class Passage {
   public:
    explicit Passage(ReportGate& gate) : gate_(gate) { gate.enter(); }
    ~Passage() { gate_.leave(); }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;
    /// Runs `add`, which queues the report. After settle() it waits for the end of the process instead.
    void accept(const std::function<void()>& add) { gate_.accept(add); }
    /// Waits until the report may return. Returns whether the function must end now.
    bool wait() { return gate_.wait(); }

   private:
    ReportGate& gate_;
  };

  /// From now on reports wait for end_after(). Returns the smallest number of reports after which this rank can end.
  int hold();
  /// Whether hold() has been called.
  bool holds() const;
  /// `restarts`: the function ends even if it calls is_over(), which stays false.
  void end_after(int reports, bool restarts = false);
  /// From now on each report waits until let_pass() or end_after() has come for it. Returns as hold() does.
  int pause();
  /// Also within accept().
  bool is_paused() const { return paused_; }
  /// So many reports may return; -1: all.
  void let_pass(int reports);
  void go_on(int reports);
  /// Accepts no more reports. When this returns, all accepted reports are queued.
  void settle();
  /// Releases all waiting threads.
  void open();
  /// Whether this rank has made its last report. A function that calls it ends by itself: wait() then returns false.
  bool is_over();

 private:
  void enter();
  void leave();
  void accept(const std::function<void()>& add);
  bool wait();
  bool has_ended() const { return end_after_ && made_ >= *end_after_; }

  const bool answered_, leads_;

  std::atomic<bool> paused_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int made_;
  int gone_on_;
  std::optional<int> current_;  ///< the index of the current report
  std::optional<int> end_after_;
  std::optional<int> passing_;  ///< after pause(): so many reports may return
  bool holds_ = false, settled_ = false, open_ = false, asked_ = false, restarts_ = false;
};

}  // namespace lockstep::worker
