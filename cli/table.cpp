#include "table.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

/// How many characters UTF-8 text has: every byte but those that continue one.
std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// The first `length` characters.
std::string cut(std::string_view text, std::size_t length) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && length-- == 0) break;
  return std::string(text.substr(0, end));
}

}  // namespace

Table::Table(const std::vector<std::string>& titles) {
  std::vector<Cell> row;
  for (const std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    row.push_back({right_.back() ? title.substr(1) : title, Colour::bold});
  }
  rows_.push_back(std::move(row));
}

std::string Table::to_text(const Terminal& terminal) const {
  std::vector<std::size_t> widths(right_.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], length_of(printable(row[i].text)));

  std::string out;
  for (const auto& row : rows_) {
    std::size_t left = terminal.width > 0 ? static_cast<std::size_t>(terminal.width) : std::string::npos;
    std::size_t gap = 0;  // spaces due before the next cell; none stand at a line's end
    for (std::size_t i = 0; i < row.size() && gap < left; ++i) {
      const std::string text = cut(printable(row[i].text), left - gap);
      const std::size_t padding = widths[i] - std::min(widths[i], length_of(text));
      if (right_[i]) gap = std::min(gap + padding, left - length_of(text));
      if (!text.empty()) {
        out.append(gap, ' ').append(terminal.paint(row[i].colour, text));
        left -= gap + length_of(text);
        gap = 0;
      }
      gap += (right_[i] ? 0 : padding) + 2;
    }
    out += '\n';
  }
  return out;
}

}  // namespace lockstep::cli
