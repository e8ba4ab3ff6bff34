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

/// The program to start and its surroundings.
struct SpawnOptions {
  std::vector<std::string> argv;  ///< argv[0] is looked up in the new environment's PATH unless it has a slash
  std::optional<std::map<std::string, std::string>> env;  ///< nothing: this process's
  std::string cwd;                                        ///< empty: this process's
  /// Pairs of a descriptor here and its number in the child. The child also inherits descriptors without close-on-exec.
  std::vector<std::pair<int, int>> fds;
  bool own_session = false;     ///< it leads a new session and process group
  int parent_death_signal = 0;  ///< sent to it when the *thread* that called spawn() ends; 0: none
};

/// A child process. Its pid is safe to use until the process is reaped; its pidfd is always safe.
struct Process {
  int pid = 0;
  Descriptor pidfd;  ///< readable when the process has ended
};

/// How a process ended: by `signal` if it is not 0, otherwise with `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool operator==(const ExitStatus&) const = default;
};

/// Starts a program with default signal handling and an empty signal mask. Cheap in a process of any size, because
/// memory is not copied. Returns when the program runs; throws EngineError with the reason if it cannot be executed.
Process spawn(const SpawnOptions& options);

/// Returns an empty descriptor if there is no such process. Throws EngineError for other errors.
Descriptor open_pidfd(int pid);
/// Returns false if the process is gone.
bool send_signal(int pidfd, int signal);
/// Reaps a child and returns its status. Returns nothing if it is not our child (or was reaped already), or if it still
/// runs and `block` is false.
std::optional<ExitStatus> take_exit(int pidfd, bool block);
/// From now on, orphaned descendants of this process become its children.
void become_subreaper();
/// The name that ps and top show, at most 15 bytes.
void set_process_name(const char* name);

/// The state of a process in /proc; nothing if there is no such process.
struct ProcessStatus {
  char state = '?';  ///< R, S, D, T (stopped), t (traced), Z, X
  int parent = 0;
  std::uint64_t start_ticks = 0;  ///< identifies the process together with the pid
  std::string wait_channel;       ///< where in the kernel it sleeps; empty if it runs or this is not readable
};
std::optional<ProcessStatus> process_status(int pid);
/// Whether the process has a handler for the signal, so that the signal would not end it.
bool catches_signal(int pid, int signal);

/// Kills every process that was started with this NAME=VALUE in its environment, and all its descendants, until none is
/// left. Returns false if some are left at `deadline`. Other users' processes, whose environment is hidden, are not
/// touched, and with `spare_session` those of the caller's session are not either.
bool kill_marked(const std::string& variable, Instant deadline, bool spare_session = false);

/// The children of a process, including those that are not reaped yet.
std::vector<int> children(int pid);
/// All descendants, except `except` and their descendants. A snapshot: processes may fork meanwhile.
std::vector<int> descendants(int pid, const std::vector<int>& except = {});

}  // namespace lockstep::sys
