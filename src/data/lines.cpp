#include "data/lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::data {

RowScanner::RowScanner(const RowRules& rules, std::int64_t target, std::int64_t offset, std::int64_t line)
    : rules_(rules), target_(target), offset_(offset), line_(line), block_{offset, offset, 0, line} {}

void RowScanner::end_row() {
  const bool counts = at_ == At::row_start ? !rules_.skip_empty : !(rules_.skip_blank && blank_);
  if (counts) {
    ++block_.rows;
    ++rows_;
  }
  at_ = At::row_start;
  blank_ = true;
  if (offset_ - block_.begin >= target_ && !after_cr_) end_block();
}

void RowScanner::end_block() {
  block_.end = offset_;
  if (block_.rows > 0) blocks_.push_back(block_);
  block_ = {offset_, offset_, 0, line_};
}

void RowScanner::append(RowScanner other) {
  end_block();
  for (RowBlock& block : other.blocks_) {
    block.first_line += line_;
    blocks_.push_back(block);
  }
  block_ = other.block_;
  block_.first_line += line_;
  line_ += other.line_;
  offset_ = other.offset_;
  rows_ += other.rows_;
  at_ = other.at_;
  escaped_ = other.escaped_;
  after_cr_ = other.after_cr_;
  blank_ = other.blank_;
}

void RowScanner::step(char c) {
  ++offset_;
  if (c == '\n') ++line_;
  if (std::exchange(after_cr_, false) && c == '\n') {
    if (offset_ - block_.begin >= target_) end_block();
    return;
  }
  if (escaped_) {
    escaped_ = false;
    blank_ = false;
    if (at_ != At::in_quotes) at_ = At::in_field;
    return;
  }
  const bool csv = rules_.quotes;
  if (csv && c == rules_.escape && c != '\0') {
    escaped_ = true;
    if (at_ != At::in_quotes) at_ = At::in_field;
    return;
  }
  const bool quote = csv && c == rules_.quote && c != '\0';
  if (at_ == At::in_quotes) {
    if (quote) at_ = rules_.double_quote ? At::after_quote : At::in_field;
    return;
  }
  if (c == '\n' || (c == '\r' && csv)) {
    after_cr_ = c == '\r' && !rules_.skip_empty;
    return end_row();
  }
  if (c != ' ' && c != '\t' && c != '\r') blank_ = false;
  if (!csv) {
    at_ = At::in_field;
  } else if (quote && at_ != At::in_field) {
    at_ = At::in_quotes;  // the beginning of a field, or the second of two quotes, which stand for one
  } else {
    at_ = c == rules_.delimiter ? At::field_start : At::in_field;
  }
}

void RowScanner::feed_plain(std::string_view piece) {
  while (!piece.empty()) {
    const auto* found = static_cast<const char*>(std::memchr(piece.data(), '\n', piece.size()));
    const auto length = found ? static_cast<std::size_t>(found - piece.data()) : piece.size();
    if (length > 0) {
      if (rules_.skip_blank && blank_)
        blank_ = piece.substr(0, length).find_first_not_of(" \t\r") == std::string_view::npos;
      at_ = rules_.quotes && piece[length - 1] == rules_.delimiter ? At::field_start : At::in_field;
      offset_ += static_cast<std::int64_t>(length);
    }
    if (!found) return;
    ++offset_;
    ++line_;
    end_row();
    piece.remove_prefix(length + 1);
  }
}

bool RowScanner::is_plain(std::string_view piece) const {
  if (!rules_.quotes) return true;
  if (at_ == At::in_quotes || at_ == At::after_quote || escaped_ || after_cr_) return false;
  const auto without = [&](char c) { return std::memchr(piece.data(), c, piece.size()) == nullptr; };
  return without('\r') && (rules_.quote == '\0' || without(rules_.quote)) &&
         (rules_.escape == '\0' || without(rules_.escape));
}

void RowScanner::feed(std::string_view piece) {
  constexpr std::size_t kStretch = 1 << 16;  // long enough to be quick, short enough that one quote slows little
  for (; !piece.empty(); piece.remove_prefix(std::min(kStretch, piece.size()))) {
    const auto stretch = piece.substr(0, kStretch);
    if (is_plain(stretch))
      feed_plain(stretch);
    else
      for (const char c : stretch) step(c);
  }
}

std::vector<RowBlock> RowScanner::finish() {
  if (at_ != At::row_start) end_row();  // the last line may lack its break
  end_block();
  return std::move(blocks_);
}

std::int64_t first_row_length(std::string_view text, const RowRules& rules) {
  RowScanner scanner(rules, 1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    scanner.feed(text.substr(at, 1));
    if (scanner.rows() == 0) continue;
    const bool both = text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
    return static_cast<std::int64_t>(at) + (both ? 2 : 1);
  }
  return -1;
}

std::int64_t lines_before_row(std::string_view text, const RowRules& rules, std::int64_t row) {
  RowScanner scanner(rules, static_cast<std::int64_t>(text.size()) + 1);
  std::size_t at = 0;
  for (; at < text.size() && scanner.rows() < row; ++at) scanner.feed(text.substr(at, 1));
  // Lines that are not rows may stand before it.
  while (at < text.size() && (text[at] == '\n' || text[at] == '\r')) ++at;
  return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
}

}  // namespace lockstep::data
