#include "collective/communicator.h"

#include <lockstep/error.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "sys/node.h"

namespace lockstep::collective {

namespace {

/// The bytes of a slot used per round, and the size up to which every rank combines everything after one round instead
/// of its own slice in two rounds. If ranks share cores, a round costs a context switch, so fewer rounds are better.
constexpr std::size_t kChunk = std::size_t{512} << 10, kAtOnce = std::size_t{16} << 10;
constexpr std::size_t kSharedCoreChunk = std::size_t{2} << 20, kSharedCoreAtOnce = std::size_t{64} << 10;

CoreSet own_cores() {
  CoreSet cores{};
  static_assert(sizeof(CoreSet) == sizeof(cpu_set_t));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) std::memcpy(&cores, &set, sizeof cores);
  return cores;
}

/// Every rank computes this from the same words, so all get the same result.
bool ranks_have_cores(Region& region) {
  std::vector<CoreSet> cores;
  for (int rank = 0; rank < region.world(); ++rank) {
    const RankWords& words = region.rank(rank);
    if (words.cores_by_quota != 0 && static_cast<int>(words.cores_by_quota) < region.world()) return false;
    cores.push_back(words.cores);
  }
  return cores_suffice(cores);
}

void wait_for_all(Region& region, int rank, std::chrono::milliseconds timeout) {
  const Occasion occasion{"join", 1, timeout};
  const Instant deadline = now() + timeout;
  GroupWords& group = region.group();
  group.gong_sleepers.fetch_add(1);
  for (std::vector<int> absent;; absent.clear()) {
    const std::uint32_t gong = group.gong.load();
    for (int other = 0; other < region.world(); ++other)
      if (region.rank(other).presence.load() == Presence::absent) absent.push_back(other);
    report_deaths(region, rank);
    if (const auto fault = region.fault()) throw_fault(region, rank, *fault, occasion);
    if (absent.empty()) break;
    if (now() >= deadline) throw_silent(region, rank, absent, occasion);
    futex_wait(group.gong, gong, std::min(deadline, now() + kDeathLook));
  }
  group.gong_sleepers.fetch_sub(1);
}

}  // namespace

std::unique_ptr<Communicator> Communicator::join(KeyValueStore& store, int rank, int world,
                                                 const CommunicatorOptions& options) {
  const RegionShape shape{.world = world, .slot_bytes = options.slot_bytes, .ring_bytes = options.ring_bytes};
  auto region = share_region(store, rank, shape, options.join_timeout);
  region->set_names(options.names);
  return std::make_unique<Communicator>(std::move(region), rank, options);
}

Communicator::Communicator(std::shared_ptr<Region> region, int rank, const CommunicatorOptions& options)
    : region_(std::move(region)),
      rank_(rank),
      grace_(options.grace),
      timeout_(options.timeout),
      sources_(region_->world()) {
  join_group(options);
  const bool have_cores = ranks_have_cores(*region_);
  spin_ = options.spin.value_or(have_cores);
  chunk_ = std::min(region_->shape().slot_bytes, have_cores ? kChunk : kSharedCoreChunk);
  at_once_ = std::min(chunk_, have_cores ? kAtOnce : kSharedCoreAtOnce);
  rounds_ = std::make_unique<Rounds>(*region_, rank_, spin_);
  mail_ = std::make_unique<Mailbox>(region_, rank_, spin_);
}

void Communicator::join_group(const CommunicatorOptions& options) {
  if (rank_ < 0 || rank_ >= size())
    throw ConfigError("[collective] rank " + std::to_string(rank_) + " in a group of " + std::to_string(size()));
  RankWords& words = region_->rank(rank_);
  if (words.presence.load() != Presence::absent)
    throw ConfigError("[collective] rank " + std::to_string(rank_) + " joins the group a second time");
  words.pid.store(::getpid());
  words.cores = own_cores();
  int allowed = 0;
  for (const std::uint64_t part : words.cores) allowed += __builtin_popcountll(part);
  const int usable = sys::usable_cores();
  words.cores_by_quota = usable < allowed ? static_cast<std::uint32_t>(usable) : 0;
  try {
    guardian_ = std::make_unique<Guardian>(region_, rank_);
    words.presence.store(Presence::joined);
    region_->strike_gong();
    wait_for_all(*region_, rank_, options.join_timeout);
  } catch (...) {
    region_->set_fault(
        {FaultKind::aborted, rank_, rank_});  // unless there already is one; the others wait for this rank
    leave();
    throw;
  }
  guardian_->watch();
}

Communicator::~Communicator() {
  if (!region_->is_here()) {
    // The threads and the membership belong to the parent.
    static_cast<void>(mail_.release());
    return;
  }
  mail_.reset();
  leave();
}

void Communicator::leave() {
  region_->rank(rank_).presence.store(Presence::left);
  region_->strike_gong();
  for (int rank = 0; rank < size(); ++rank) region_->ring_bell(rank);
}

void Communicator::send(const void* data, std::size_t bytes, int to, std::int64_t tag) {
  // The const_cast is safe: the mailbox only reads what it sends.
  mail_->send({.data = const_cast<void*>(data), .bytes = bytes, .peer = to, .tag = tag, .timeout = timeout()});
}

int Communicator::receive(void* data, std::size_t bytes, int from, std::int64_t tag) {
  return mail_->receive({.data = data, .bytes = bytes, .peer = from, .tag = tag, .timeout = timeout()});
}

void Communicator::fail(FaultKind kind, int culprit) {
  region_->set_fault({kind, culprit, rank_});
  throw_fault(*region_, rank_, *region_->fault(), occasion());
}

void Communicator::abort() {
  check_member(*region_, rank_);
  region_->set_fault({FaultKind::aborted, rank_, rank_});
}

}  // namespace lockstep::collective
