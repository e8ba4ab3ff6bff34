#pragma once

#include <string>
#include <string_view>

namespace lockstep::driver {

/// What a rank's stacks say about its training function. The worker writes the text: Python's frames of all threads,
/// innermost first, then the native frames of the interrupted thread.
struct StackSummary {
  std::string place;        ///< the innermost line of the user's code: "/x/train.py, line 7 in train_func"
  std::string frames;       ///< Python frames of the function's thread only, without Lockstep's own
  bool in_library = false;  ///< library code runs, called at `place`
  bool waits = false;       ///< for other ranks: in a collective, a barrier, or something that depends on them
  std::string waits_in;     ///< the name of the call, if it has one in Python
};

/// A pure function. Without Python frames (a C++ program, a process that did not answer) `place` and `frames` are
/// empty.
StackSummary summarize_stacks(std::string_view text);

}  // namespace lockstep::driver
