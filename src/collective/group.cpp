#include "collective/group.h"

#include <lockstep/error.h>

#include <string>

namespace lockstep::collective {

void check_root(const Group& group, int root) {
  if (root < 0 || root >= group.size())
    throw ConfigError("[collective] root " + std::to_string(root) + " in a group of " + std::to_string(group.size()));
}

void check_parts(const Group& group, std::size_t parts, std::string_view name) {
  if (parts != static_cast<std::size_t>(group.size()))
    throw ConfigError("[collective] " + std::to_string(parts) + " " + std::string(name) + "s in a group of " +
                      std::to_string(group.size()) + "; give one for every rank");
}

std::vector<void*> rows(void* data, std::size_t bytes, int parts) {
  std::vector<void*> pointers(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < pointers.size(); ++i) pointers[i] = static_cast<std::byte*>(data) + i * bytes;
  return pointers;
}

std::vector<const void*> rows(const void* data, std::size_t bytes, int parts) {
  std::vector<const void*> pointers(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < pointers.size(); ++i) pointers[i] = static_cast<const std::byte*>(data) + i * bytes;
  return pointers;
}

}  // namespace lockstep::collective
