#pragma once

#include <string>
#include <vector>

#include "output_style.h"

namespace lockstep::cli {

/// Rows of text in columns as wide as their widest cell, two spaces apart. On a terminal, lines that are too long are
/// cut.
class Table {
 public:
  struct Cell {
    std::string text;  ///< control characters are not printed
    Colour colour = Colour::plain;
  };

  /// Columns whose title begins with `>` are aligned to the right.
  explicit Table(const std::vector<std::string>& titles);
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  /// All lines, the titles first.
  std::string to_text(const OutputStyle& style) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace lockstep::cli
