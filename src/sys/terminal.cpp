#include "sys/terminal.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace lockstep::sys {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Terminal terminal_of(int fd) {
  Terminal terminal;
  if (::isatty(fd) == 0) return terminal;
  terminal.obeys = variable("TERM") != "dumb";
  terminal.colours = terminal.obeys && variable("NO_COLOR").empty();
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0) terminal.width = size.ws_col;
  return terminal;
}

bool same_file(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace lockstep::sys
