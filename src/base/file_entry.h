#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

namespace lockstep {

/// One file of a checkpoint, as it is written to manifest.json and sent on the wire.
struct FileEntry {
  std::string name;  ///< relative, parts joined by '/'
  std::int64_t size = 0;
  std::string xxh3_128;  ///< 32 hexadecimal digits
  bool operator==(const FileEntry&) const = default;
  auto fields() {
    return std::make_tuple(std::pair{"name", &name}, std::pair{"size", &size}, std::pair{"xxh3_128", &xxh3_128});
  }
};

}  // namespace lockstep
