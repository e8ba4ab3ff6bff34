#pragma once

#include <string>
#include <string_view>

namespace lockstep::driver {

/// What a rank's stacks tell of its training function. The text is the worker's: Python's frames of all threads, the
/// innermost first, then the native ones of the thread that was interrupted.
struct StackSummary {
  std::string place;        ///< the innermost line of the user's own code: "/x/train.py, line 7 in train_func"
  std::string frames;       ///< Python's, of the function's thread alone, without Lockstep's own around it
  bool in_library = false;  ///< a library's code runs, called at `place`
  bool waits = false;       ///< for other ranks: in a collective, a barrier, or what comes of them
  std::string waits_in;     ///< the call's name, where it has one in Python
};

/// Pure. Without Python frames (a C++ program, a process that did not answer) `place` and `frames` are empty.
StackSummary summarize_stacks(std::string_view text);

}  // namespace lockstep::driver
