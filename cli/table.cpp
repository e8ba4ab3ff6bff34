#include "table.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::cli {
Table::Table(const std::vector<std::string>& titles) {
  std::vector<Cell> row;
  for (const std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    row.push_back({right_.back() ? title.substr(1) : title, Colour::bold});
  }
  rows_.push_back(std::move(row));
}

std::string Table::to_text(const OutputStyle& style) const {
  std::vector<std::size_t> widths(right_.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_length(printable(row[i].text)));

  std::string out;
  for (const auto& row : rows_) {
    std::size_t left = style.width > 0 ? static_cast<std::size_t>(style.width) : std::string::npos;
    std::size_t gap = 0;  // spaces before the next cell; lines have no trailing spaces
    for (std::size_t i = 0; i < row.size() && gap < left; ++i) {
      const std::string text = first_characters(printable(row[i].text), left - gap);
      const std::size_t padding = widths[i] - std::min(widths[i], text_length(text));
      if (right_[i]) gap = std::min(gap + padding, left - text_length(text));
      if (!text.empty()) {
        out.append(gap, ' ').append(style.paint(row[i].colour, text));
        left -= gap + text_length(text);
        gap = 0;
      }
      gap += (right_[i] ? 0 : padding) + 2;
    }
    out += '\n';
  }
  return out;
}

}  // namespace lockstep::cli
