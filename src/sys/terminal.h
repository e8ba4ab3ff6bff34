#pragma once

namespace lockstep::sys {

/// The terminal that a descriptor writes to.
struct Terminal {
  bool obeys = false;    ///< a terminal that supports control sequences: TERM is not dumb
  bool colours = false;  ///< the same, and NO_COLOR is unset or empty
  int width = 0;         ///< columns; 0: unlimited
};

Terminal terminal_of(int fd);

/// Whether both refer to the same terminal or file.
bool same_file(int one, int other);

}  // namespace lockstep::sys
