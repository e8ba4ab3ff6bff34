#include "driver/worker_line.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace lockstep::driver {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::size_t kLongestSequence = 64;
constexpr std::size_t kTab = 8;

bool stays_as_it_is(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 32 && byte != 127 && byte != 0xC2;  // 0xC2 may start a control character
}

/// The length of the control sequence (ECMA-48, 5.4) at the start of `text`; 0: there is none; npos: it is incomplete.
std::size_t sequence_length(std::string_view text) {
  if (text.size() == 1) return std::string_view::npos;
  if (text[1] != '[') return 0;
  const std::size_t end = std::min(text.size(), kLongestSequence);
  for (std::size_t at = 2; at < end; ++at) {
    if (text[at] >= 0x40 && text[at] <= 0x7e) return at + 1;
    if (text[at] < 0x20 || text[at] > 0x3f) return 0;
  }
  return end < kLongestSequence ? std::string_view::npos : 0;
}

}  // namespace

std::string WorkerLine::clean(std::string_view text) {
  const std::string joined = std::exchange(cut_, {}).append(text);
  const std::string_view input = joined;
  std::string out;
  out.reserve(input.size());
  for (std::size_t at = 0; at < input.size();) {
    std::size_t end = at;
    while (end < input.size() && stays_as_it_is(input[end])) ++end;
    out += input.substr(at, end - at);
    at = end;
    if (at == input.size()) break;
    if (input[at] == kEscape) {
      const std::size_t length = sequence_length(input.substr(at));
      if (length == std::string_view::npos) {
        cut_ = input.substr(at);
        break;
      }
      if (length > 0) {
        at += length;
        continue;
      }
    }
    const std::size_t length = control_length(input, at);
    const bool passes = length == 0 || input[at] == '\n' || input[at] == '\r' || input[at] == '\t';
    out += passes ? input[at] : '?';
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

WorkerLine::Shown WorkerLine::add(std::string_view text) {
  const std::string given = clean(text);
  const std::size_t end = given.rfind('\n') + 1;  // 0 when there is none
  Shown shown;
  append(shown.whole, std::string_view(given).substr(0, end));
  append(shown.unfinished, std::string_view(given).substr(end));
  return shown;
}

void WorkerLine::append(std::string& out, std::string_view clean) {
  while (!clean.empty()) {
    if (!std::exchange(begun_, true)) {
      out += prefix_;
      widest_ = columns_ = prefix_.size();
    }
    const std::size_t end = clean.find_first_of("\r\n");
    const std::string_view piece = clean.substr(0, end);
    if (!piece.empty()) {
      if (std::exchange(returned_, false)) {
        out.append("\r").append(prefix_);
        text_.clear();
        columns_ = prefix_.size();
      }
      out += piece;
      text_ += piece;
      widen(piece);
    }
    if (end == std::string_view::npos) return;
    if (clean[end] == '\n') {
      out += returned_ ? "\r\n" : "\n";
      begin_line();
    } else {
      returned_ = true;
    }
    clean.remove_prefix(end + 1);
  }
}

void WorkerLine::widen(std::string_view text) {
  columns_ += text_length(text) + (kTab - 1) * static_cast<std::size_t>(std::ranges::count(text, '\t'));
  widest_ = std::max(widest_, columns_);
}

std::string WorkerLine::redraw() {
  if (!begun_) return {};
  columns_ = widest_ = prefix_.size();
  widen(text_);
  return prefix_ + text_;
}

void WorkerLine::begin_line() {
  text_.clear();
  begun_ = returned_ = false;
  columns_ = widest_ = 0;
}

}  // namespace lockstep::driver
