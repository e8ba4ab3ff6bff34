#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace lockstep {

/// One file of a checkpoint, as it is written to manifest.json and sent on the wire.
struct FileEntry {
  std::string name;  ///< relative, parts joined by '/'
  std::int64_t size = 0;
  std::string xxh3_128;  ///< 32 hexadecimal digits
  bool operator==(const FileEntry&) const = default;
  LOCKSTEP_FIELDS(name, size, xxh3_128);
};

}  // namespace lockstep
