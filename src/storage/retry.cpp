#include "storage/retry.h"

#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <thread>

namespace lockstep::storage {

Seconds pause_before(int next, double random) {
  const double longest = std::min(10.0, 0.1 * std::pow(2.0, std::clamp(next - 2, 0, 20)));
  return Seconds(longest * (0.5 + 0.5 * random));
}

bool is_permanent(std::string_view error) {
  static constexpr std::array<std::string_view, 12> kSigns{"ACCESS_DENIED",
                                                           "NO_SUCH_BUCKET",
                                                           "INVALID_ACCESS_KEY_ID",
                                                           "SIGNATURE_DOES_NOT_MATCH",
                                                           "INVALID_CLIENT_TOKEN_ID",
                                                           "NoSuchBucket",
                                                           "AccessDenied",
                                                           "HTTP status 403",
                                                           "HTTP 403",
                                                           "Bucket does not exist",
                                                           "PERMISSION_DENIED",
                                                           "is damaged"};
  return std::ranges::any_of(kSigns, [&](std::string_view sign) { return error.find(sign) != std::string_view::npos; });
}

void with_retries(const std::string& what, Instant deadline, const std::function<void()>& body) {
  thread_local std::minstd_rand generator{std::random_device{}()};
  for (int next = 2;; ++next) {
    std::string cause;
    try {
      return body();
    } catch (const StorageError& error) {
      cause = error.what();
    }
    const Seconds pause = pause_before(next, std::uniform_real_distribution<double>(0, 1)(generator));
    const bool permanent = is_permanent(cause);
    if (permanent || now() + ticks(pause) > deadline)
      throw StorageError("[storage] could not " + what + ": " + cause +
                         (permanent ? "" : " (after " + std::to_string(next - 1) + " tries)"));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace lockstep::storage
