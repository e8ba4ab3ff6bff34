#include "base/ids.h"

#include <atomic>
#include <ctime>
#include <random>

#include "base/text.h"

namespace lockstep {
namespace {

std::string local_time(WallTime time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

}  // namespace

std::string random_hex(int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string text;
  while (static_cast<int>(text.size()) < digits) text += kDigits[device() % 16];
  return text;
}

int next_run_id() {
  static std::atomic<int> last = 0;
  return ++last;
}

std::string date_string(WallTime time) { return local_time(time, "%Y-%m-%d_%H-%M-%S"); }

std::string time_string(WallTime time) { return local_time(time, "%Y-%m-%d %H:%M:%S"); }

std::string_view run_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == "." || name == "..") return "names a directory that exists already";
  if (name.size() > 200) return "is longer than 200 bytes";
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '/') return "contains '/'";
    if (control_length(name, i) > 0) return "contains a control character";
  }
  return "";
}

}  // namespace lockstep
