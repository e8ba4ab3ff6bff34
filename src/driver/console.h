#pragma once

#include <lockstep/value.h>
#include <unistd.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "driver/worker_line.h"

namespace lockstep::driver {

/// Where a Console writes.
struct Screen {
  int out = STDOUT_FILENO, err = STDERR_FILENO;
  bool out_redraws = false, err_redraws = false;  ///< a terminal whose last row can be redrawn
  bool err_colours = false;
  bool shared = false;  ///< both are the same terminal or file
  int width = 80;       ///< columns

  /// The process's own output. Colours follow the same rules as on the command line; LOCKSTEP_PLAIN_OUTPUT turns off
  /// colours and redrawing.
  static Screen of_process();
};

/// "4 workers", "1 worker".
std::string counted_workers(int count);
/// "4 workers running (pids 10, 11, 12, 13)"; only the first pids if there are many.
std::string running_text(const std::vector<int>& pids);

/// What a run shows: lines and one progress line on standard error, redrawn in place on a terminal and printed now and
/// then elsewhere. The workers' output goes to standard output at once, with the rank in front. Silent with verbose =
/// 0. Used by the driver's thread only.
///
/// If several runs share a terminal, the first has the last row. The others write complete lines above it, with their
/// name in front.
///
/// The last row holds the progress line, or the unfinished line of a rank, such as a progress bar, as long as it
/// changes. Unfinished lines of other ranks wait meanwhile; finished lines are printed above it.
class Console {
 public:
  /// `shows`: whose output is shown, "rank0", "all", "none" or ranks as "0,2". `name`: of the run.
  Console(int verbose, std::string shows, Screen screen, std::string name = "")
      : verbose_(verbose), shows_(std::move(shows)), screen_(screen), name_(std::move(name)) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A complete line, e.g. a worker's change of state.
  void line(std::string_view text);
  /// A warning line.
  void warning(std::string_view text);
  /// A warning that is shown even with verbose = 0, because the user would lose data without it.
  void alert(std::string_view text);
  /// What a rank printed.
  void output(int rank, std::string_view text, Instant now);
  /// The run has reached `iteration` with these metrics, `elapsed` after its start.
  void progress(long iteration, const Value& metrics, Instant now, Seconds elapsed);
  /// The ranks have ended: finishes their unfinished lines.
  void end_lines();
  /// Shows what progress() held back, and finishes unfinished lines.
  void finish();

  /// "#12  4 reports/s  3.2s  epoch=3  val/loss=0.25", as the progress line has it.
  static std::string progress_text(long iteration, const Value& metrics, double rate, Seconds elapsed);

 private:
  class Turn;

  void write(int fd, std::string_view text);
  WorkerLine& line_of(int rank);
  void end_all_lines();
  bool redraws() const { return screen_.err_redraws && !is_guest_; }
  std::string tag() const { return is_guest_ && !name_.empty() ? "[" + name_ + "] " : ""; }
  bool is_row_kept(Instant now) const;
  bool shows(int rank) const;
  void show(int rank, std::string_view text, bool waits);
  void emit_line(const std::string& text);
  void update_rate(long iteration, Instant now, Seconds elapsed);
  void clear_progress();
  void hide_open_line();
  void restore_row(int rank);
  void draw_progress(bool last);

  int verbose_;
  std::string shows_;
  Screen screen_;
  std::string name_;
  bool is_guest_ = false;  ///< another run has the last row
  Turn* turn_ = nullptr;
  std::string progress_;
  bool progress_new_ = false, progress_drawn_ = false;
  Instant last_drawn_{};
  std::map<int, WorkerLine> lines_;  ///< by rank
  int open_ = -1;                    ///< the rank whose unfinished line is in the last row of standard output
  int holder_ = -1;                  ///< the rank that wrote an unfinished line last, at held_since_
  Instant held_since_{};
  Instant rate_since_{};
  long rate_iteration_ = 0, last_iteration_ = 0;
  double rate_ = 0;
  bool rate_settled_ = false;
};

}  // namespace lockstep::driver
