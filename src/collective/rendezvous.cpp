#include "collective/rendezvous.h"

#include <lockstep/error.h>

namespace lockstep::collective {
namespace {

constexpr char kRefused = '!';

bool is_refusal(const std::string& value) { return !value.empty() && value.front() == kRefused; }

/// The value; throws what another rank said instead.
std::string expect(Rendezvous& store, const std::string& key, std::chrono::milliseconds timeout) {
  std::string value = store.get(key, timeout);
  if (is_refusal(value)) throw ConfigError(value.substr(1));
  return value;
}

std::shared_ptr<Region> offer(Rendezvous& store, const RegionShape& shape, std::chrono::milliseconds timeout) {
  auto region = Region::create(shape);
  store.set("region", region->address());
  // All answers first: until then somebody may be about to open it.
  std::string refusal;
  for (int rank = 1; rank < shape.world; ++rank) {
    const std::string answer = store.get("joined/" + std::to_string(rank), timeout);
    if (refusal.empty() && is_refusal(answer)) refusal = answer.substr(1);
  }
  if (!refusal.empty()) throw ConfigError(refusal);
  region->close_address();
  store.set("complete", "yes");
  return region;
}

std::shared_ptr<Region> accept(Rendezvous& store, int rank, const RegionShape& shape,
                               std::chrono::milliseconds timeout) {
  const std::string address = expect(store, "region", timeout);
  const std::string key = "joined/" + std::to_string(rank);
  std::shared_ptr<Region> region;
  try {
    region = Region::open(address, shape.world);
  } catch (const Error& error) {
    store.set(key, kRefused + ("[collective] rank " + std::to_string(rank) + " cannot join: ") + error.what());
    throw;
  }
  store.set(key, "yes");
  expect(store, "complete", timeout);
  return region;
}

}  // namespace

std::shared_ptr<Region> share_region(Rendezvous& store, int rank, const RegionShape& shape,
                                     std::chrono::milliseconds timeout) {
  if (rank < 0 || rank >= shape.world)
    throw ConfigError("[collective] rank " + std::to_string(rank) + " in a group of " + std::to_string(shape.world));
  if (rank != 0) return accept(store, rank, shape, timeout);
  try {
    return offer(store, shape, timeout);
  } catch (const Error& error) {
    // Whichever of the two the others wait for.
    const std::string refusal = kRefused + std::string(error.what());
    store.set("region", refusal);
    store.set("complete", refusal);
    throw;
  }
}

}  // namespace lockstep::collective
