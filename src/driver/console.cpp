#include "driver/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace lockstep::driver {
namespace {

constexpr Seconds kRedraw{0.1};
constexpr Seconds kPlainLine{1.0};
constexpr Seconds kRateOver{0.5};
constexpr Seconds kFirstRateOver{0.02};
/// A rank that prints without ever ending its line is shown in pieces of this size.
constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::size_t kMetricsShown = 6;

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

void append_metric(std::string& out, const std::string& key, const Value& value) {
  if (value.is_number_float())
    out += "  " + key + "=" + short_number(value.get<double>());
  else if (value.is_number() || value.is_boolean())
    out += "  " + key + "=" + value.dump();
  else if (value.is_string() && value.get_ref<const std::string&>().size() <= 24)
    out += "  " + key + "=" + value.get<std::string>();
}

}  // namespace

Console::Console(int verbose, bool terminal, int width) : verbose_(verbose), terminal_(terminal), width_(width) {}

Console Console::for_stderr(int verbose) {
  const bool terminal = isatty(STDERR_FILENO) != 0 && std::getenv("LOCKSTEP_PLAIN_OUTPUT") == nullptr;
  winsize size{};
  const int width = terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  Console console(verbose, terminal, width);
  const char* no_color = std::getenv("NO_COLOR");
  console.colour_ = terminal && (no_color == nullptr || *no_color == '\0');
  return console;
}

void Console::emit(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;  // nobody reads: a run does not end for that
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Console::clear_progress() {
  if (std::exchange(progress_drawn_, false)) emit(STDERR_FILENO, "\r\x1b[2K");
}

void Console::draw_progress(bool last) {
  if (!terminal_) return emit(STDERR_FILENO, progress_ + "\n");
  std::string text = progress_.substr(0, static_cast<std::size_t>(std::max(width_ - 1, 10)));
  if (colour_) text = "\x1b[36m" + text + "\x1b[0m";
  emit(STDERR_FILENO, "\r\x1b[2K" + text + (last ? "\n" : ""));
  progress_drawn_ = !last;
}

void Console::line(std::string_view text) {
  if (verbose_ == 0) return;
  clear_progress();
  emit(STDERR_FILENO, std::string(text) + "\n");
  if (terminal_ && !progress_.empty()) draw_progress(false);
}

void Console::warning(std::string_view text) {
  line(colour_ ? "\x1b[33mwarning:\x1b[0m " + std::string(text) : "warning: " + std::string(text));
}

void Console::output(int rank, std::string_view text) {
  if (verbose_ == 0) return;
  std::string& rest = unfinished_[rank];
  rest += text;
  const std::string prefix =
      colour_ ? "\x1b[2m[rank " + std::to_string(rank) + "]\x1b[0m " : "[rank " + std::to_string(rank) + "] ";
  std::string shown;
  std::size_t begin = 0;
  for (std::size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1)
    shown += prefix + rest.substr(begin, end - begin + 1);
  rest.erase(0, begin);
  if (rest.size() > kLongestLine) shown += prefix + std::exchange(rest, {}) + "\n";
  if (shown.empty()) return;
  clear_progress();
  emit(STDOUT_FILENO, shown);
  if (terminal_ && !progress_.empty()) draw_progress(false);
}

std::string Console::progress_text(long iteration, const Value& metrics, double rate, Seconds elapsed) {
  std::string text = "#" + std::to_string(iteration);
  std::size_t shown = 0;
  for (const auto& [key, value] : metrics.items()) {
    if (shown == kMetricsShown) break;
    const std::size_t before = text.size();
    append_metric(text, key, value);
    shown += text.size() > before;
  }
  return text + "  " + short_number(rate) + "/s  " + human_duration(elapsed.count());
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
    // In the first half second the best guess is all there has been.
    if (!rate_settled_ && since >= kFirstRateOver)
      rate_ = static_cast<double>(iteration - rate_iteration_) / since.count();
    return;
  }
  rate_since_ = now;
  rate_iteration_ = iteration;
}

void Console::progress(long iteration, const Value& metrics, Instant now, Seconds elapsed) {
  if (verbose_ == 0) return;
  update_rate(iteration, now, elapsed);
  progress_new_ = true;
  if (now - last_drawn_ < (terminal_ ? kRedraw : kPlainLine)) {
    // The text is made only when it is shown; finish() needs the newest.
    progress_ = progress_text(iteration, metrics, rate_, elapsed);
    return;
  }
  last_drawn_ = now;
  progress_ = progress_text(iteration, metrics, rate_, elapsed);
  progress_new_ = false;
  draw_progress(false);
}

void Console::finish() {
  for (auto& [rank, rest] : unfinished_)
    if (!rest.empty()) output(rank, "\n");
  if (terminal_ && progress_drawn_)
    draw_progress(true);
  else if (progress_new_ && verbose_ > 0)
    draw_progress(true);
  progress_.clear();
  progress_new_ = progress_drawn_ = false;
}

}  // namespace lockstep::driver
