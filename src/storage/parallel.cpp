#include "storage/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::storage {

void in_parallel(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex
  const auto work = [&] {
    for (std::size_t number = next++; number < count && !failed; number = next++) {
      try {
        job(number);
      } catch (...) {
        failed = true;
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(count, threads); ++i) others.emplace_back(work);
  work();
  for (std::thread& each : others) each.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::storage
