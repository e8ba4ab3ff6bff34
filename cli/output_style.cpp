#include "output_style.h"

#include <unistd.h>

#include "sys/terminal.h"

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

}  // namespace

OutputStyle OutputStyle::of_stdout() {
  const sys::Terminal terminal = sys::terminal_of(STDOUT_FILENO);
  return {terminal.colours, terminal.width};
}

std::string OutputStyle::paint(Colour colour, std::string_view text) const {
  if (!colours || colour == Colour::plain) return std::string(text);
  return "\x1b[" + std::string(code_of(colour)) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace lockstep::cli
