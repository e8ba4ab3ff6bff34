#include <cstdio>
#include <exception>
#include <lockstep/error.h>

#include "base/text.h"
#include "command_line.h"

int main(int argc, char** argv) {
  try {
    lockstep::cli::CommandLine command_line;
    const int code = command_line.execute(argc, argv);
    if (std::fflush(stdout) != 0) throw lockstep::StorageError("[output] standard output cannot be written");
    return code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "lockstep: %s\n", lockstep::printable(error.what()).c_str());
    const bool is_usage = dynamic_cast<const lockstep::cli::UsageError*>(&error) != nullptr;
    return is_usage ? lockstep::cli::kWrongUsage : lockstep::cli::kFailed;
  }
}
