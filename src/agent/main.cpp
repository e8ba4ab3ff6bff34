#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "agent/agent.h"
#include "base/log.h"
#include "sys/process.h"
#include "sys/sockets.h"

namespace {

constexpr const char* kUsage =
    "Usage: lockstep-agent --fd N [--parent PID]\n"
    "Runs the workers of one node; started by Lockstep, not by hand.\n"
    "  --fd N        connected packet socket, which brings the connections of runs\n"
    "  --parent PID  also end when this process ends\n";

/// The number after `option`, or -1.
int number_after(int argc, char** argv, const char* option) {
  for (int i = 1; i + 1 < argc; ++i) {
    int number = -1;
    const char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    if (std::strcmp(argv[i], option) == 0 && std::from_chars(argv[i + 1], end, number).ptr == end) return number;
  }
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  const int fd = number_after(argc, argv, "--fd");
  const int parent = number_after(argc, argv, "--parent");
  if (fd < 3) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    lockstep::sys::set_process_name("lockstep-agent");
    lockstep::sys::close_all_but(fd);
    lockstep::sys::close_on_exec(fd);
    lockstep::agent::Agent agent({lockstep::sys::Descriptor(fd), parent > 0 ? parent : 0});
    agent.run();
    return 0;
  } catch (const std::exception& error) {
    lockstep::log_error(error.what());
    return 1;
  }
}
