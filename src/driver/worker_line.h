#pragma once

#include <string>
#include <string_view>

namespace lockstep::driver {

/// The line that a rank is writing, as a reader may see it: control sequences (colours, movements of the cursor) are
/// left out, other control characters but tab, return and line feed are `?`, and a prefix stands at the line's
/// beginning and behind every return.
class WorkerLine {
 public:
  explicit WorkerLine(std::string prefix) : prefix_(std::move(prefix)) {}

  struct Shown {
    std::string whole;       ///< up to the last line feed
    std::string unfinished;  ///< behind it
  };
  /// Takes what the rank wrote next, cut anywhere between two characters; what a reader who saw the line so far sees
  /// next. A return is shown together with what follows it.
  Shown add(std::string_view text);
  /// The line so far, for a reader who does not see it (any more). From then on it is as wide as that.
  std::string redraw();

  /// Whether anything was written since the last line feed.
  bool begun() const { return begun_; }
  /// Whether a reader would miss it.
  bool blank() const { return text_.find_first_not_of(" \t") == std::string::npos; }
  std::size_t size() const { return text_.size(); }
  /// The columns that it takes with its prefix, at its widest.
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
