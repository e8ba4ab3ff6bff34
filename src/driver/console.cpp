#include "driver/console.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "metrics/metric_texts.h"
#include "sys/terminal.h"

namespace lockstep::driver {
namespace {

constexpr Seconds kRedraw{0.1};
constexpr Seconds kPlainLine{1.0};
/// While a progress bar moves, the progress line has no row of its own: it is printed as a line at this interval.
constexpr Seconds kLineAboveBar{10.0};
/// An unfinished line keeps the last row for this long after its last change.
constexpr Seconds kKeepsRow{1.0};
constexpr Seconds kRateOver{0.5};
constexpr Seconds kFirstRateOver{0.02};
/// An unfinished line that grows beyond this size is shown in pieces.
constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::size_t kMetricsShown = 12;
constexpr std::size_t kPidsShown = 16;
constexpr std::string_view kErase = "\r\x1b[2K";

void emit(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;  // the reader is gone; the run continues
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Messages quote what workers and users wrote.
std::string printable_lines(std::string_view text) {
  std::string out;
  for (std::size_t end; (end = text.find_first_of("\n\t")) != std::string_view::npos; text.remove_prefix(end + 1))
    out += printable(text.substr(0, end)) + text[end];
  return out + printable(text);
}

/// The consoles that have the last row, by the descriptor of standard error.
struct LastRows {
  std::mutex mutex;
  std::map<int, Console*> owners;
};
LastRows& last_rows() {
  static auto* rows = new LastRows;
  return *rows;
}

}  // namespace

/// While it exists, no other run writes. If there is something to write, clears the last row of the run that holds it,
/// and restores it afterwards.
class Console::Turn {
 public:
  explicit Turn(Console& console) : lock_(last_rows().mutex), console_(console) {
    Console*& owner = last_rows().owners[console.screen_.err];
    if (owner == nullptr && console.verbose_ > 0) owner = &console;
    if (owner != &console) host_ = owner;
    console.is_guest_ = host_ != nullptr;
    console.turn_ = this;
  }
  ~Turn() {
    console_.turn_ = nullptr;
    if (has_room_) host_->restore_row(open_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void make_room() {
    if (host_ == nullptr || std::exchange(has_room_, true)) return;
    open_ = host_->open_;
    host_->clear_progress();
    host_->hide_open_line();
  }

 private:
  std::unique_lock<std::mutex> lock_;
  Console& console_;
  Console* host_ = nullptr;
  bool has_room_ = false;
  int open_ = -1;  ///< of the host
};

void Console::write(int fd, std::string_view text) {
  if (turn_ != nullptr) turn_->make_room();
  emit(fd, text);
}

Console::~Console() {
  const std::lock_guard lock(last_rows().mutex);
  std::erase_if(last_rows().owners, [&](const auto& each) { return each.second == this || each.second == nullptr; });
}

Screen Screen::of_process() {
  Screen screen;
  const auto out = sys::terminal_of(screen.out), err = sys::terminal_of(screen.err);
  screen.shared = sys::same_file(screen.out, screen.err);
  screen.width = err.width > 0 ? err.width : out.width > 0 ? out.width : screen.width;
  if (std::getenv("LOCKSTEP_PLAIN_OUTPUT") != nullptr) return screen;
  screen.out_redraws = out.obeys;
  screen.err_redraws = err.obeys;
  screen.err_colours = err.colours;
  return screen;
}

std::string counted_workers(int count) { return std::to_string(count) + (count == 1 ? " worker" : " workers"); }

std::string running_text(const std::vector<int>& pids) {
  std::string text = counted_workers(static_cast<int>(pids.size())) + " running (pid" + (pids.size() == 1 ? " " : "s ");
  for (std::size_t i = 0; i < std::min(pids.size(), kPidsShown); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(pids[i]);
  return text + (pids.size() > kPidsShown ? ", ...)" : ")");
}

// ---------------------------------------------------------------- the last row

void Console::clear_progress() {
  if (std::exchange(progress_drawn_, false)) write(screen_.err, kErase);
}

/// Erases the unfinished line from standard output, unless it is wider than the terminal or the output is a file.
void Console::hide_open_line() {
  if (open_ < 0) return;
  const std::size_t columns = line_of(std::exchange(open_, -1)).columns();
  write(screen_.out, screen_.out_redraws && columns < static_cast<std::size_t>(screen_.width) ? kErase : "\n");
}

/// Redraws the last row of a terminal after something was written: the line of `rank`, or (-1) the progress line.
void Console::restore_row(int rank) {
  if (rank >= 0 && screen_.out_redraws) {
    write(screen_.out, line_of(rank).redraw());
    open_ = rank;
  } else if (redraws() && !progress_.empty() && !progress_drawn_ && !(screen_.shared && open_ >= 0)) {
    draw_progress(false);
  }
}

void Console::draw_progress(bool last) {
  if (screen_.shared) hide_open_line();
  if (!redraws()) return write(screen_.err, tag() + progress_ + "\n");
  std::string text = first_characters(progress_, static_cast<std::size_t>(std::max(screen_.width - 1, 10)));
  if (screen_.err_colours) text = "\x1b[36m" + text + "\x1b[0m";
  write(screen_.err, std::string(kErase) + text + (last ? "\n" : ""));
  progress_drawn_ = !last;
}

// ---------------------------------------------------------------- lines

void Console::line(std::string_view text) {
  if (verbose_ == 0) return;
  const Turn turn(*this);
  emit_line(printable_lines(text));
}

void Console::warning(std::string_view text) {
  if (verbose_ == 0) return;
  const Turn turn(*this);
  emit_line((screen_.err_colours ? "\x1b[33mwarning:\x1b[0m " : "warning: ") + printable_lines(text));
}

void Console::alert(std::string_view text) {
  if (verbose_ > 0) return warning(text);
  const Turn turn(*this);
  write(screen_.err, "lockstep: warning: " + printable_lines(text) + "\n");
}

void Console::emit_line(const std::string& text) {
  clear_progress();
  const int open = screen_.shared ? open_ : -1;
  if (screen_.shared) hide_open_line();
  write(screen_.err, tag() + text + "\n");
  restore_row(open);
}

WorkerLine& Console::line_of(int rank) {
  const auto found = lines_.find(rank);
  return found != lines_.end() ? found->second
                               : lines_.try_emplace(rank, tag() + "[rank " + std::to_string(rank) + "] ").first->second;
}

/// Whether the holder's unfinished line keeps the last row.
bool Console::is_row_kept(Instant now) const {
  if (holder_ < 0 || now - held_since_ >= kKeepsRow) return false;
  const WorkerLine& line = lines_.at(holder_);
  return line.begun() && !line.blank();
}

bool Console::shows(int rank) const {
  if (shows_ == "rank0" || shows_ == "all" || shows_ == "none")
    return shows_ == "all" || (shows_ == "rank0" && rank == 0);
  const std::string list = "," + shows_ + ",";
  return list.find("," + std::to_string(rank) + ",") != std::string::npos;
}

void Console::output(int rank, std::string_view text, Instant now) {
  if (verbose_ == 0 || !shows(rank)) return;
  const Turn turn(*this);
  const bool waits = is_guest_ || (holder_ != rank && is_row_kept(now));
  show(rank, text, waits);
  if (line_of(rank).size() > kLongestLine) show(rank, "\n", waits);
  if (waits) return;
  holder_ = rank;
  held_since_ = now;
}

/// `waits`: an unfinished line is kept, but not shown.
void Console::show(int rank, std::string_view text, bool waits) {
  WorkerLine& line = line_of(rank);
  std::string shown = open_ == rank ? "" : line.redraw();
  const auto [whole, unfinished] = line.add(text);
  if (whole.empty() && (waits || unfinished.empty())) return;
  shown += whole;
  if (!waits) shown += unfinished;
  const int before = open_ == rank ? -1 : open_;
  if (screen_.shared) clear_progress();
  if (open_ != rank) hide_open_line();
  write(screen_.out, shown);
  open_ = line.begun() && !waits ? rank : -1;
  if (open_ < 0) restore_row(before);
}

void Console::end_lines() {
  const Turn turn(*this);
  end_all_lines();
}

void Console::end_all_lines() {
  for (auto& [rank, line] : lines_) {
    if (line.begun() && !line.blank()) show(rank, "\n", true);
    if (open_ == rank) hide_open_line();
  }
  lines_.clear();
  holder_ = -1;
}

// ---------------------------------------------------------------- progress

std::string Console::progress_text(long iteration, const Value& metrics, double rate, Seconds elapsed) {
  // Fixed parts come first, so that the edge of the terminal cuts off only metrics.
  std::string text = "#" + std::to_string(iteration) + "  " + metrics::short_number(rate) + " reports/s  " +
                     human_duration(elapsed.count());
  for (const auto& metric : metrics::metric_texts(metrics, metrics::Keys::all, kMetricsShown)) text += "  " + metric;
  return text;
}

void Console::update_rate(long iteration, Instant now, Seconds elapsed) {
  const Seconds since = now - rate_since_;
  if (iteration <= std::exchange(last_iteration_, iteration) || rate_since_ == Instant{}) {  // the first of an attempt
    rate_ = elapsed.count() > 0 ? 1 / elapsed.count() : 0;
    rate_settled_ = false;
  } else if (since >= kRateOver) {
    rate_ = static_cast<double>(iteration - rate_iteration_) / since.count();
    rate_settled_ = true;
  } else {
    // In the first half second the best estimate is the average so far.
    if (!rate_settled_ && since >= kFirstRateOver)
      rate_ = static_cast<double>(iteration - rate_iteration_) / since.count();
    return;
  }
  rate_since_ = now;
  rate_iteration_ = iteration;
}

void Console::progress(long iteration, const Value& metrics, Instant now, Seconds elapsed) {
  if (verbose_ == 0) return;
  const Turn turn(*this);
  update_rate(iteration, now, elapsed);
  progress_ = progress_text(iteration, metrics, rate_, elapsed);
  progress_new_ = true;
  const bool beside_bar = redraws() && screen_.shared && is_row_kept(now);
  if (now - last_drawn_ < (!redraws() ? kPlainLine : beside_bar ? kLineAboveBar : kRedraw)) return;
  last_drawn_ = now;
  progress_new_ = false;
  if (beside_bar)
    emit_line(progress_);
  else
    draw_progress(false);
}

void Console::finish() {
  const Turn turn(*this);
  end_all_lines();
  if (progress_drawn_ || (progress_new_ && verbose_ > 0)) draw_progress(true);
  progress_.clear();
  progress_new_ = progress_drawn_ = false;
}

}  // namespace lockstep::driver
