#pragma once

#include <lockstep/value.h>

#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep::driver {

/// What a run shows while it goes on: lines and one progress line on standard error, redrawn in place on a terminal and
/// written now and then elsewhere; what workers print goes to standard output with the rank in front. Silent with
/// verbose = 0. Used by the driver's thread alone.
class Console {
 public:
  /// `terminal`: standard error is one. `width`: its columns.
  Console(int verbose, bool terminal, int width);
  /// For the process's own standard error; colours only there and without NO_COLOR.
  static Console for_stderr(int verbose);

  /// A whole line, e.g. a worker's change of state.
  void line(std::string_view text);
  /// A line that asks for attention.
  void warning(std::string_view text);
  /// What a rank printed; whole lines are shown, the rest waits for its end.
  void output(int rank, std::string_view text);
  /// The run stands at `iteration` with these metrics, `elapsed` after its start.
  void progress(long iteration, const Value& metrics, Instant now, Seconds elapsed);
  /// Shows what progress() held back, and unfinished lines.
  void finish();

  /// "#12  epoch=3  loss=0.25  4.0/s  3.2s", as the progress line has it.
  static std::string progress_text(long iteration, const Value& metrics, double rate, Seconds elapsed);

 private:
  void update_rate(long iteration, Instant now, Seconds elapsed);
  void clear_progress();
  void draw_progress(bool last);
  void emit(int fd, std::string_view text);

  int verbose_;
  bool terminal_;
  bool colour_ = false;
  int width_;
  std::string progress_;
  bool progress_new_ = false, progress_drawn_ = false;
  Instant last_drawn_{};
  std::map<int, std::string> unfinished_;
  Instant rate_since_{};
  long rate_iteration_ = 0, last_iteration_ = 0;
  double rate_ = 0;
  bool rate_settled_ = false;
};

}  // namespace lockstep::driver
