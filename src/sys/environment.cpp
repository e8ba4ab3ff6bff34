#include "sys/environment.h"

#include <unistd.h>

#include <cstring>

namespace lockstep::sys {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each)
    if (const char* equals = std::strchr(*each, '='))
      variables.emplace(std::string(*each, static_cast<std::size_t>(equals - *each)), equals + 1);
  return variables;
}

}  // namespace lockstep::sys
