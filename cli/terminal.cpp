#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::cli {
namespace {

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::bold:
      return "1";
    case Colour::dim:
      return "2";
    case Colour::red:
      return "31";
    case Colour::green:
      return "32";
    case Colour::yellow:
      return "33";
    case Colour::blue:
      return "34";
    case Colour::plain:
      break;
  }
  return "0";
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Terminal Terminal::of_stdout() {
  Terminal terminal;
  if (::isatty(STDOUT_FILENO) == 0) return terminal;
  terminal.colours = environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.width = size.ws_col;
  return terminal;
}

std::string Terminal::paint(Colour colour, std::string_view text) const {
  if (!colours || colour == Colour::plain) return std::string(text);
  return "\x1b[" + std::string(code_of(colour)) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace lockstep::cli
