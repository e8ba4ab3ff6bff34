#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

enum class Colour { plain, bold, dim, red, green, yellow, blue };

/// How text looks on standard output. Colours only on a terminal, and not if NO_COLOR is set and not empty, or TERM is
/// dumb.
struct OutputStyle {
  bool colours = false;
  int width = 0;  ///< columns; 0: unlimited

  static OutputStyle of_stdout();
  /// `text` in that colour, if there are colours.
  std::string paint(Colour colour, std::string_view text) const;
};

}  // namespace lockstep::cli
