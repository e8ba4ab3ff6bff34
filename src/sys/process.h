#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sys/descriptor.h"

namespace lockstep::sys {

/// What to start and what it finds.
struct SpawnOptions {
  std::vector<std::string> argv;  ///< argv[0] is looked up in the new environment's PATH unless it has a slash
  std::optional<std::map<std::string, std::string>> env;  ///< none: this process's own
  std::string cwd;                                        ///< empty: this process's own
  /// (descriptor here, its number there); of the rest it gets only those without close-on-exec.
  std::vector<std::pair<int, int>> fds;
  bool own_session = false;     ///< it leads a session and a process group of its own
  int parent_death_signal = 0;  ///< sent to it when the *thread* that called spawn() ends; 0: none
};

/// A child process. Its pid is safe to use until it has been waited for; its pidfd always.
struct Process {
  int pid = 0;
  Descriptor pidfd;  ///< readable when the process has ended
};

/// How a process ended: `signal` when it is not 0, else `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool operator==(const ExitStatus&) const = default;
};

/// Starts a program, with default signal handling and an empty signal mask. Cheap in a process of any size: memory is
/// not copied. Returns when the program runs; throws EngineError with the reason when it cannot be executed.
Process spawn(const SpawnOptions& options);

/// Throws EngineError; errors that say "no such process" give an empty descriptor.
Descriptor open_pidfd(int pid);
/// Whether the signal was sent; false: the process is gone.
bool send_signal(int pidfd, int signal);
/// Waits for a child and takes its status; nothing when it is no child of ours (somebody else has taken its status), or
/// still runs and `block` is false.
std::optional<ExitStatus> take_exit(int pidfd, bool block);
/// Takes the status of every child that has ended and is not in `except`: the adopted ones of a subreaper.
void reap_children_except(const std::vector<int>& except);
/// From now on, orphaned descendants of this process become its children.
void become_subreaper();
/// The name that ps and top show, at most 15 bytes.
void set_process_name(const char* name);

/// What /proc tells about a process; nothing when there is none.
struct ProcessStatus {
  char state = '?';  ///< R, S, D, T (stopped), t (traced), Z, X
  int parent = 0;
  std::uint64_t start_ticks = 0;  ///< with the pid, names the process for ever
  std::string wait_channel;       ///< where in the kernel it sleeps; empty when it runs or this may not be known
};
std::optional<ProcessStatus> process_status(int pid);
/// Whether the process has a handler for the signal, so that the signal would not end it.
bool catches_signal(int pid, int signal);

/// SIGKILL to every process that began with this NAME=VALUE in its environment, and to all that descends from it, until
/// none is left. False when some still are at `deadline`. Processes of others, whose environment is hidden, are left
/// alone.
bool kill_marked(const std::string& variable, Instant deadline);

/// Children that live now or wait to be reaped.
std::vector<int> children(int pid);
/// Children, their children and so on; `except` and what descends from it are left out. A snapshot: processes may fork
/// meanwhile.
std::vector<int> descendants(int pid, const std::vector<int>& except = {});

}  // namespace lockstep::sys
