#include "train/directory_claim.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"

namespace lockstep::train {
namespace {

struct Claims {
  std::mutex mutex;                                             // guards those below
  std::set<std::pair<int, std::filesystem::path>> directories;  ///< with the process that claimed them
};
Claims& claims() {
  static auto* instance = new Claims;
  return *instance;
}

}  // namespace

DirectoryClaim::DirectoryClaim(const std::filesystem::path& directory)
    : directory_(std::filesystem::weakly_canonical(directory)), owner_(::getpid()) {
  const std::lock_guard lock(claims().mutex);
  if (claims().directories.emplace(owner_, directory_).second) return;
  throw ConfigError("[trainer] " + in_quotes(directory.native()) +
                    " is used by another run of this process; choose another name, or wait for the end of that run");
}

DirectoryClaim::~DirectoryClaim() {
  if (directory_.empty()) return;
  const std::lock_guard lock(claims().mutex);
  claims().directories.erase({owner_, directory_});
}

}  // namespace lockstep::train
