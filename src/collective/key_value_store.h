#pragma once

#include <chrono>
#include <string>

namespace lockstep::collective {

/// How ranks find each other: any key-value store that all of them reach, such as a c10d::Store. Each group needs its
/// own keys (a prefix).
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key is set. Throws after the timeout.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace lockstep::collective
