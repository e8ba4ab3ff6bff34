#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace lockstep {
namespace {

enum class Level { debug, info, warning, error, off };

struct LevelLook {
  std::string_view word;
  std::string_view colour;
};
constexpr std::array<LevelLook, 5> kLooks{{{"debug", "\033[36m"},
                                           {"info", "\033[32m"},
                                           {"warning", "\033[33m\033[1m"},
                                           {"error", "\033[31m\033[1m"},
                                           {"off", ""}}};

Level wanted_level() {
  const char* word = std::getenv("LOCKSTEP_LOG_LEVEL");
  for (std::size_t i = 0; word != nullptr && i < kLooks.size(); ++i)
    if (kLooks[i].word == word) return static_cast<Level>(i);
  return Level::warning;
}

void write_line(Level level, std::string_view message) {
  static const Level least = wanted_level();
  if (level < least) return;
  static const bool coloured = isatty(STDERR_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const auto& [word, colour] = kLooks.at(static_cast<std::size_t>(level));
  std::string line = "lockstep: ";
  line += coloured ? std::string(colour) + std::string(word) + "\033[m" : std::string(word);
  line.append(": ").append(message).append("\n");
  // One write call per line, so that lines of threads and processes do not mix. Write errors are ignored.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void log_debug(std::string_view message) { write_line(Level::debug, message); }
void log_info(std::string_view message) { write_line(Level::info, message); }
void log_warning(std::string_view message) { write_line(Level::warning, message); }
void log_error(std::string_view message) { write_line(Level::error, message); }

}  // namespace lockstep
