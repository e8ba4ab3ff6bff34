#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

/// Sees long work that the calling thread waits for, and may end it.
class Watch {
 public:
  virtual ~Watch() = default;
  /// Called about every 100 ms, and for every block, by the thread that waits. What it throws ends the work.
  virtual void tick(const std::string& step, std::int64_t done, std::int64_t total) = 0;

  /// The watch of this thread, or null.
  static Watch* current();

  /// A watch for the calling thread, while the scope lasts.
  class Scope {
   public:
    explicit Scope(Watch& watch);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watch* before_;
  };
};

}  // namespace lockstep::data
