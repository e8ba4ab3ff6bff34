#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sys/descriptor.h"
#include "sys/process.h"

namespace lockstep::engine {

/// A program that a launcher runs, in a session of its own, so that Ctrl-C on a terminal does not reach it. What it
/// prints is kept in memory. Not thread-safe.
class Program {
 public:
  struct Options {
    std::vector<std::string> argv;
    std::optional<std::map<std::string, std::string>> env{};  ///< nothing: this process's
    std::string cwd{};                                        ///< empty: this process's
    std::string input{};                                      ///< what it reads from its standard input, at most 4 kB
    std::vector<std::pair<int, int>> fds{};                   ///< more descriptors, as sys::spawn() takes them
    bool keep_input = false;  ///< its standard input then stays open until close_input() or the end of this process
  };

  /// Starts it. Throws EngineError if it cannot be executed.
  explicit Program(const Options& options);
  /// Kills it if it runs, unless this is a fork of the process that started it.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// How it ended; nothing if it runs. Waits until `deadline`.
  std::optional<sys::ExitStatus> ended(Instant deadline = {});
  /// All that it printed to its standard output and error so far.
  std::string output() const;
  std::string errors() const;
  /// The last lines of what it printed: of its standard error, or else of its output. At most ten, without control
  /// characters. Forgets the rest when that is much.
  std::string last_lines();

  void close_input() { input_.reset(); }
  void signal(int number);

 private:
  sys::Descriptor input_, output_, errors_;
  sys::Process process_;
  std::optional<sys::ExitStatus> status_;
  int owner_ = 0;  ///< the process that started it
};

/// "code 3", "signal 9".
std::string to_string(const sys::ExitStatus& status);

/// Runs a program to its end, at most `patience`. Throws EngineError, with what it printed and `where`, if it cannot be
/// executed, fails or takes longer. Returns its output.
std::string output_of(const std::string& where, const Program::Options& options, Seconds patience);

}  // namespace lockstep::engine
