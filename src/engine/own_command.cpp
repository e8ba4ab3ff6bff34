#include "engine/own_command.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/text.h"
#include "engine/launched_commands.h"

namespace lockstep::engine {

std::string own_command() {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(!word.empty() && word.find_first_not_of(kPlain) == std::string::npos ? word
                                                                                         : shell_command({word}));
  return printable(joined(words, " "));
}

}  // namespace lockstep::engine
