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

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  // U+0080 to U+009F, two bytes each in UTF-8, are control characters too.
  for (std::size_t i = 0; (i = out.find('\xC2', i)) != std::string::npos && i + 1 < out.size(); ++i)
    if (static_cast<unsigned char>(out[i + 1]) >= 0x80 && static_cast<unsigned char>(out[i + 1]) < 0xA0)
      out.replace(i, 2, "?");
  return out;
}

}  // namespace lockstep::cli
