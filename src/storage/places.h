#pragma once

#include <arrow/type_fwd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "store/address.h"

namespace arrow::fs {
class FileSystem;
}

namespace lockstep::storage {

/// A place in a file system of Arrow.
struct Place {
  std::shared_ptr<arrow::fs::FileSystem> system;
  std::string path;          ///< within the system
  store::Address shown;      ///< for messages
  bool has_objects = false;  ///< objects without directories; an object appears when it is whole
};

/// Finds file systems and keeps them, so that all operations on a bucket share connections. Any thread may use it.
class Places {
 public:
  /// Throws StorageError if Arrow cannot make the file system.
  Place at(const store::Address& address);

 private:
  struct Root {
    std::shared_ptr<arrow::fs::FileSystem> system;
    std::string path;
  };
  std::mutex mutex_;                   // guards those below
  std::map<std::string, Root> roots_;  ///< by the bucket's address
};

/// What lies below it; `names` as in Address::operator/.
Place operator/(const Place& place, const std::string& names);

/// Throws StorageError with Arrow's message unless the status is good.
void check(const arrow::Status& status);

}  // namespace lockstep::storage
