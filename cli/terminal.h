#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

enum class Colour { plain, bold, dim, red, green, yellow, blue };

/// What standard output is. Colours only on a terminal, and never when NO_COLOR is set (to anything but nothing) or
/// TERM is dumb.
struct Terminal {
  bool colours = false;
  int width = 0;  ///< columns; 0: unlimited

  static Terminal of_stdout();
  /// `text` in that colour, where there are colours.
  std::string paint(Colour colour, std::string_view text) const;
};

}  // namespace lockstep::cli
