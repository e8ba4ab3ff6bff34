#include "collective/share_region.h"

#include <algorithm>

namespace lockstep::collective {
namespace {

/// Prefix of a value that says why there will be no group; the reason follows.
constexpr char kWrong = '!', kCannotShare = '~';

constexpr const char *kRegion = "region", *kComplete = "complete";
std::string joined(int rank) { return "joined/" + std::to_string(rank); }

bool is_refusal(const std::string& value) { return value.starts_with(kWrong) || value.starts_with(kCannotShare); }

/// The current exception, as a value for the other ranks.
std::string refusal(const std::string& opening = "") {
  try {
    throw;
  } catch (const CannotShareMemory& error) {
    return kCannotShare + opening + error.what();
  } catch (const std::exception& error) {
    return kWrong + opening + error.what();
  } catch (...) {
    return kWrong + opening + "[collective] an unknown error";
  }
}

[[noreturn]] void throw_refusal(const std::string& value) {
  if (value.front() == kCannotShare) throw CannotShareMemory(value.substr(1));
  throw ConfigError(value.substr(1));
}

/// The value; throws if another rank published an error instead.
std::string expect(KeyValueStore& store, const std::string& key, std::chrono::milliseconds timeout) {
  std::string value = store.get(key, timeout);
  if (is_refusal(value)) throw_refusal(value);
  return value;
}

std::shared_ptr<Region> offer(KeyValueStore& store, const RegionShape& shape, std::chrono::milliseconds timeout) {
  auto region = Region::create(shape);
  store.set(kRegion, region->address());
  // Wait for all answers: until then a rank may be about to open it. But a ConfigError takes precedence and is not
  // delayed, because the ranks that should answer next may not exist.
  std::string refused;
  for (int rank = 1; rank < shape.world && !refused.starts_with(kWrong); ++rank) {
    const std::string answer = store.get(joined(rank), timeout);
    if (is_refusal(answer)) refused = answer;
  }
  if (!refused.empty()) throw_refusal(refused);
  region->close_address();
  store.set(kComplete, "yes");
  return region;
}

std::shared_ptr<Region> accept(KeyValueStore& store, int rank, const RegionShape& shape,
                               std::chrono::milliseconds timeout) {
  const std::string address = expect(store, kRegion, timeout);
  std::string answer = "yes";
  std::shared_ptr<Region> region;
  try {
    region = Region::open(address, shape.world);
  } catch (...) {
    answer = refusal("[collective] rank " + std::to_string(rank) + " cannot join: ");
  }
  store.set(joined(rank), answer);
  // Whatever the answers are, rank 0 knows all of them and publishes the same result to everybody.
  expect(store, kComplete, timeout);
  if (!region) throw_refusal(answer);
  return region;
}

/// It is not known which rank this should have been, so it answers for all.
void check_rank(KeyValueStore& store, int rank, int world) {
  if (rank >= 0 && rank < world) return;
  const std::string reason =
      "[collective] rank " + std::to_string(rank) + " in a group of " + std::to_string(world) + "; ranks count from 0";
  for (const char* key : {kRegion, kComplete}) store.set(key, kWrong + reason);
  for (int other = 1; other <= std::min(std::max(world - 1, rank), kMaxRanks); ++other)
    store.set(joined(other), kWrong + reason);
  throw ConfigError(reason);
}

}  // namespace

std::shared_ptr<Region> share_region(KeyValueStore& store, int rank, const RegionShape& shape,
                                     std::chrono::milliseconds timeout) {
  check_rank(store, rank, shape.world);
  try {
    return rank == 0 ? offer(store, shape, timeout) : accept(store, rank, shape, timeout);
  } catch (...) {
    const std::string reason = refusal();
    if (rank != 0) {
      store.set(joined(rank), reason);
    } else {
      // Set both keys; the others may wait for either.
      store.set(kRegion, reason);
      store.set(kComplete, reason);
    }
    throw;
  }
}

}  // namespace lockstep::collective
