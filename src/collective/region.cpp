#include "collective/region.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <sstream>

#include "base/ids.h"

namespace lockstep::collective {
namespace {

constexpr std::uint64_t kMagic = 0x324c4c4f434b434cULL;  // change it with the layout
constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

struct Layout {
  std::size_t ranks, rings, slots, ring_data, total;
};

Layout layout_of(const RegionShape& shape) {
  const auto world = static_cast<std::size_t>(shape.world);
  Layout layout{};
  layout.ranks = round_up(sizeof(GroupWords), kPage);
  layout.rings = layout.ranks + round_up(world * sizeof(RankWords), kPage);
  layout.slots = layout.rings + round_up(world * world * sizeof(Ring), kPage);
  layout.ring_data = layout.slots + world * kSlots * round_up(shape.slot_bytes, kPage);
  layout.total = layout.ring_data + world * world * shape.ring_bytes;
  return layout;
}

void check(const RegionShape& shape) {
  if (shape.world < 1 || shape.world > kMaxRanks)
    throw ConfigError("[collective] a group of " + std::to_string(shape.world) + " ranks; 1 to " +
                      std::to_string(kMaxRanks) + " are possible");
  const std::size_t least = std::max(kPage, (static_cast<std::size_t>(shape.world) + 1) * kCacheLine);
  if (shape.slot_bytes < least || shape.slot_bytes % kCacheLine != 0)
    throw ConfigError("[collective] staging of " + std::to_string(shape.slot_bytes) +
                      " bytes; use a multiple of 64, at least " + std::to_string(least));
  if (shape.ring_bytes < kPage || !std::has_single_bit(shape.ring_bytes))
    throw ConfigError("[collective] mail rings of " + std::to_string(shape.ring_bytes) +
                      " bytes; use a power of two, at least 4096");
}

[[noreturn]] void fail(const std::string& what) {
  throw CannotShareMemory("[collective] " + what + ": " + std::strerror(errno) +
                          "; free memory or raise the process's limits, or use Gloo");
}

/// Beyond the file size limit the kernel would not only refuse, but also send SIGXFSZ.
bool set_size(int fd, std::size_t size) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
    errno = EFBIG;
    return false;
  }
  return ::ftruncate(fd, static_cast<off_t>(size)) == 0;
}

/// Identifies the boot and the PID namespace; equal for processes that see each other's /proc.
std::string machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0)
    throw CannotShareMemory(
        "[collective] /proc shows neither the boot id nor the PID namespace, so ranks cannot find each other; use "
        "Gloo");
  return boot + "/" + std::to_string(space.st_ino);
}

}  // namespace

Region::Region(sys::Descriptor memory, const RegionShape& shape, bool fresh)
    : shape_(shape), memory_(std::move(memory)), owner_pid_(::getpid()) {
  const Layout layout = layout_of(shape);
  void* mapped = ::mmap(nullptr, layout.total, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) fail("cannot map " + std::to_string(layout.total) + " bytes of shared memory");
  base_ = static_cast<std::byte*>(mapped);
  size_ = layout.total;
  ::madvise(mapped, size_, MADV_DONTFORK);
  slots_ = base_ + layout.slots;
  ring_data_ = base_ + layout.ring_data;
  const auto world = static_cast<std::size_t>(shape.world);
  if (fresh) {
    group_ = new (base_) GroupWords;
    ranks_ = new (base_ + layout.ranks) RankWords[world];
    rings_ = new (base_ + layout.rings) Ring[world * world];
  } else {
    group_ = std::launder(reinterpret_cast<GroupWords*>(base_));
    ranks_ = std::launder(reinterpret_cast<RankWords*>(base_ + layout.ranks));
    rings_ = std::launder(reinterpret_cast<Ring*>(base_ + layout.rings));
  }
}

std::shared_ptr<Region> Region::create(const RegionShape& shape) {
  check(shape);
  sys::Descriptor memory(::memfd_create("lockstep-collective", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create");
  const std::size_t size = layout_of(shape).total;
  if (!set_size(memory.get(), size)) fail("cannot make " + std::to_string(size) + " bytes of shared memory");
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("cannot seal shared memory");
  std::shared_ptr<Region> region(new Region(std::move(memory), shape, true));
  GroupWords& group = region->group();
  group.world = static_cast<std::uint32_t>(shape.world);
  group.slot_bytes = shape.slot_bytes;
  group.ring_bytes = shape.ring_bytes;
  const std::string token = random_hex(32);
  std::memcpy(group.token.data(), token.c_str(), group.token.size());
  group.magic = kMagic;
  return region;
}

std::string Region::address() const {
  std::ostringstream text;
  text << machine() << " " << ::getpid() << " " << memory_.get() << " " << group_->token.data() << " " << shape_.world
       << " " << shape_.slot_bytes << " " << shape_.ring_bytes;
  return text.str();
}

std::shared_ptr<Region> Region::open(const std::string& address, int world) {
  std::istringstream text(address);
  std::string where, token;
  int pid = 0, fd = -1;
  RegionShape shape;
  if (!(text >> where >> pid >> fd >> token >> shape.world >> shape.slot_bytes >> shape.ring_bytes))
    throw ConfigError("[collective] '" + address +
                      "' is not an address of shared memory; do all ranks run the same Lockstep?");
  if (shape.world != world)
    throw ConfigError("[collective] this rank expects " + std::to_string(world) + " ranks and rank 0 " +
                      std::to_string(shape.world) + "; give all the same world size");
  if (where != machine())
    throw CannotShareMemory(
        "[collective] this rank and rank 0 are on different machines or in different PID namespaces; use Gloo");
  check(shape);
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  sys::Descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memory)
    throw CannotShareMemory(
        "[collective] cannot open " + path + " of rank 0: " + std::strerror(errno) +
        "; all ranks must run as the same user and rank 0 must be alive and dumpable; otherwise use Gloo");
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0) fail("fstat");
  if (static_cast<std::size_t>(info.st_size) != layout_of(shape).total)
    throw CannotShareMemory("[collective] " + path + " is not the memory of this group; rank 0 has ended");
  std::shared_ptr<Region> region(new Region(std::move(memory), shape, false));
  if (region->group().magic != kMagic || token != region->group().token.data())
    throw CannotShareMemory("[collective] " + path + " is not the memory of this group; rank 0 has ended");
  region->close_address();
  return region;
}

Region::~Region() {
  // A child of fork() never had the mapping; something else may be mapped there now.
  if (is_here()) ::munmap(base_, size_);
}

bool Region::is_here() const { return ::getpid() == owner_pid_; }

std::byte* Region::slot(int rank, std::uint32_t round) {
  return slots_ + (static_cast<std::size_t>(rank) * kSlots + round % kSlots) * round_up(shape_.slot_bytes, kPage);
}

Ring& Region::ring(int from, int to) { return rings_[from * shape_.world + to]; }

std::byte* Region::ring_bytes(int from, int to) {
  return ring_data_ + static_cast<std::size_t>(from * shape_.world + to) * shape_.ring_bytes;
}

void Region::set_fault(const Fault& fault) {
  std::uint64_t none = 0;
  const std::uint64_t word = static_cast<std::uint64_t>(fault.kind) << 32 |
                             static_cast<std::uint64_t>(fault.culprit) << 16 |
                             static_cast<std::uint64_t>(fault.reporter);
  group_->fault.compare_exchange_strong(none, word);
  strike_gong();
  for (int rank = 0; rank < shape_.world; ++rank) ring_bell(rank);
}

std::optional<Fault> Region::fault() {
  const std::uint64_t word = group_->fault.load();
  if (word == 0) return std::nullopt;
  return Fault{static_cast<FaultKind>(word >> 32), static_cast<int>(word >> 16 & 0xffff),
               static_cast<int>(word & 0xffff)};
}

void Region::strike_gong() {
  group_->gong.fetch_add(1);
  if (group_->gong_sleepers.load() != 0) futex_wake(group_->gong);
}

void Region::ring_bell(int rank) {
  RankWords& words = ranks_[rank];
  words.bell.fetch_add(1);
  if (words.bell_sleepers.load() != 0) futex_wake(words.bell);
}

bool cores_suffice(const std::vector<CoreSet>& cores) {
  constexpr int kCores = 64 * static_cast<int>(std::tuple_size_v<CoreSet>);
  std::vector<int> rank_of(kCores, -1);
  std::vector<bool> seen;
  // Kuhn's matching: give `rank` a core, moving others to other cores of theirs.
  const auto allowed = [&](int rank, int core) { return (cores[rank][core / 64] >> (core % 64) & 1) != 0; };
  const std::function<bool(int)> place = [&](int rank) {
    for (int core = 0; core < kCores; ++core) {
      if (!allowed(rank, core) || rank_of[core] >= 0) continue;
      rank_of[core] = rank;
      return true;
    }
    for (int core = 0; core < kCores; ++core) {
      if (!allowed(rank, core) || seen[core]) continue;
      seen[core] = true;
      if (!place(rank_of[core])) continue;
      rank_of[core] = rank;
      return true;
    }
    return false;
  };
  for (int rank = 0; rank < static_cast<int>(cores.size()); ++rank) {
    seen.assign(kCores, false);
    if (!place(rank)) return false;
  }
  return true;
}

}  // namespace lockstep::collective
