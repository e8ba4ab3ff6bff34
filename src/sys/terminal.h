#pragma once

namespace lockstep::sys {

/// What a descriptor shows its text on.
struct Terminal {
  bool obeys = false;    ///< a terminal that understands more than lines: TERM is not dumb
  bool colours = false;  ///< the same, and NO_COLOR is not set, or to nothing
  int width = 0;         ///< columns; 0: unlimited
};

Terminal terminal_of(int fd);

/// Whether both lead to the same terminal or file.
bool same_file(int one, int other);

}  // namespace lockstep::sys
