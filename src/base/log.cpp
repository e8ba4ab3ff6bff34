#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <cstdlib>
#include <string>

namespace lockstep {
namespace {

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("lockstep", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>());
    made.set_pattern("lockstep: %^%l%$: %v");
    const char* level = std::getenv("LOCKSTEP_LOG_LEVEL");
    made.set_level(spdlog::level::from_str(level != nullptr ? level : "warning"));
    return made;
  }();
  return instance;
}

}  // namespace

void log_debug(std::string_view message) { logger().debug(message); }
void log_info(std::string_view message) { logger().info(message); }
void log_warning(std::string_view message) { logger().warn(message); }
void log_error(std::string_view message) { logger().error(message); }

}  // namespace lockstep
