#pragma once

#include <string>
#include <string_view>

namespace lockstep::driver {

/// The line that a rank is writing, as it may be shown: control sequences (colours, cursor movements) are removed,
/// other control characters except tab, return and line feed become `?`, and a prefix is added at the start of the line
/// and after every return.
class WorkerLine {
 public:
  explicit WorkerLine(std::string prefix) : prefix_(std::move(prefix)) {}

  struct Shown {
    std::string whole;       ///< up to the last line feed
    std::string unfinished;  ///< after it
  };
  /// Adds what the rank wrote next, split anywhere between two characters, and returns what to print next. A return is
  /// printed together with what follows it.
  Shown add(std::string_view text);
  /// The line so far, to print it again from the start. Its width is then measured from that.
  std::string redraw();

  /// Whether anything was written since the last line feed.
  bool begun() const { return begun_; }
  /// Whether the line is blank.
  bool blank() const { return text_.find_first_not_of(" \t") == std::string::npos; }
  std::size_t size() const { return text_.size(); }
  /// The maximum number of columns that it took, with its prefix.
  std::size_t columns() const { return widest_; }

 private:
  std::string clean(std::string_view text);
  void append(std::string& out, std::string_view clean);
  void widen(std::string_view text);
  void begin_line();

  std::string prefix_;
  std::string cut_;   ///< the beginning of a control sequence
  std::string text_;  ///< since the last return
  bool begun_ = false;
  bool returned_ = false;  ///< a return came last
  std::size_t columns_ = 0, widest_ = 0;
};

}  // namespace lockstep::driver
