#include "data/shared_cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace lockstep::data {
namespace {

constexpr const char* kPlace = "/dev/shm";
constexpr std::uint64_t kMagic = 0x6c6b'7374'6361'6301;
constexpr std::size_t kEntries = 512;
constexpr std::size_t kPage = 4096;

std::size_t rounded(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

std::string prefix() { return "lockstep-data-" + std::to_string(::geteuid()) + "-"; }

/// Two locks of the file: flock() is held by the one that makes the cache or joins, a lock of its first byte, shared,
/// by all who use it.
bool mark(int file, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return ::fcntl(file, F_OFD_SETLK, &lock) == 0;
}

/// Removes the files of caches that no process uses.
void remove_leftovers() {
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(kPlace, ignored)) {
    if (!file.path().filename().string().starts_with(prefix())) continue;
    const sys::Descriptor opened(::open(file.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 && mark(opened.get(), F_WRLCK))
      ::unlink(file.path().c_str());
  }
}

bool is_private(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

}  // namespace

struct SharedCache::Entry {
  enum class State : std::uint32_t { none, claimed, ready };

  std::uint64_t key = 0;
  State state = State::none;
  std::int32_t maker = 0;  ///< the process that claimed it
  std::uint32_t pins = 0;
  std::int32_t done = 0;  ///< ranks that need it no more
  std::size_t begin = 0;  ///< from the beginning of the memory
  std::size_t size = 0;
  std::uint64_t made = 0;  ///< counts up
};

struct SharedCache::Header {
  std::atomic<std::uint64_t> magic{0};
  pthread_mutex_t mutex;
  std::size_t capacity = 0;
  std::size_t allocated = 0;  ///< there is memory up to here
  std::int32_t ranks = 0;
  std::int32_t joined = 0;
  std::int32_t maker = 0;       ///< the process that made the memory
  std::int32_t descriptor = 0;  ///< of the memory in that process
  bool broken = false;
  std::uint64_t made = 0;
  sys::Word changes{0};
  std::array<Entry, kEntries> entries{};
};

/// Holds the lock, unless the cache is broken, or the memory that of the parent of fork().
class SharedCache::Lock {
 public:
  explicit Lock(const SharedCache& cache) : header_(*cache.header_) {
    if (!cache.is_here()) return;
    const int result = ::pthread_mutex_lock(&header_.mutex);
    if (result == EOWNERDEAD) {
      header_.broken = true;  // the one that died may have left anything
      ::pthread_mutex_consistent(&header_.mutex);
    }
    locked_ = result == 0 || result == EOWNERDEAD;
  }
  ~Lock() {
    if (locked_) ::pthread_mutex_unlock(&header_.mutex);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  explicit operator bool() const { return locked_ && !header_.broken; }

 private:
  Header& header_;
  bool locked_ = false;
};

std::shared_ptr<SharedCache> SharedCache::join(const std::string& name, int ranks, std::size_t capacity) {
  remove_leftovers();
  const std::string path = std::string(kPlace) + "/" + prefix() + name;
  const auto failed = [&](const char* what) {
    log_debug("[data] ranks share no blocks: " + std::string(what) + " " + path + ": " + std::strerror(errno));
    return nullptr;
  };
  sys::Descriptor file;
  struct stat status {};
  do {  // again, if it was removed before it was locked
    file = sys::Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return failed("cannot open");
    // One at a time: whoever finds it empty makes it.
    if (::flock(file.get(), LOCK_EX) != 0 || ::fstat(file.get(), &status) != 0) return failed("cannot lock");
  } while (status.st_nlink == 0);
  if (!is_private(status)) return failed("somebody else can open");
  const bool is_new = status.st_size == 0;
  if (is_new && ::posix_fallocate(file.get(), 0, sizeof(Header)) != 0) return failed("no memory for");
  if (!is_new && status.st_size != sizeof(Header)) return failed("another Lockstep made");
  void* memory = ::mmap(nullptr, sizeof(Header), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return failed("cannot map");
  ::madvise(memory, sizeof(Header), MADV_DONTFORK);
  std::shared_ptr<SharedCache> cache(new SharedCache(std::move(file), ranks));
  cache->header_ = is_new ? new (memory) Header : std::launder(static_cast<Header*>(memory));
  Header& header = *cache->header_;
  if (is_new && !cache->make(ranks, capacity)) return failed("no memory for");
  if (!is_new && (header.magic != kMagic || header.ranks != ranks)) return failed("another Lockstep made");
  if (!is_new && !cache->open_bytes()) return failed("cannot open the memory of");
  if (!cache->map_bytes()) return failed("cannot map the memory of");
  if (++header.joined >= ranks) ::unlink(path.c_str());
  if (!mark(cache->file_.get(), F_RDLCK) || ::flock(cache->file_.get(), LOCK_UN) != 0) return failed("cannot lock");
  return cache;
}

bool SharedCache::make(int ranks, std::size_t capacity) {
  bytes_file_ = sys::Descriptor(::memfd_create("lockstep-data", MFD_CLOEXEC));
  if (!bytes_file_ || ::ftruncate(bytes_file_.get(), static_cast<off_t>(kPage + rounded(capacity))) != 0) return false;
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&header_->mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  header_->capacity = kPage + rounded(capacity);
  header_->allocated = kPage;
  header_->ranks = ranks;
  header_->maker = ::getpid();
  header_->descriptor = bytes_file_.get();
  header_->magic = kMagic;
  return true;
}

bool SharedCache::open_bytes() {
  const std::string path = "/proc/" + std::to_string(header_->maker) + "/fd/" + std::to_string(header_->descriptor);
  bytes_file_ = sys::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  return bytes_file_ && ::fstat(bytes_file_.get(), &status) == 0 && status.st_uid == ::geteuid() &&
         static_cast<std::size_t>(status.st_size) == header_->capacity;
}

bool SharedCache::map_bytes() {
  void* memory = ::mmap(nullptr, header_->capacity, PROT_READ | PROT_WRITE, MAP_SHARED, bytes_file_.get(), 0);
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, header_->capacity, MADV_DONTFORK);
  bytes_ = static_cast<std::byte*>(memory);
  return true;
}

bool SharedCache::is_here() const { return owner_ == ::getpid(); }

SharedCache::~SharedCache() {
  if (!is_here()) return;
  if (bytes_ != nullptr) ::munmap(bytes_, header_->capacity);
  if (header_ != nullptr) ::munmap(static_cast<void*>(header_), sizeof(Header));
}

SharedCache::Entry* SharedCache::find(std::uint64_t key) {
  const auto found = std::ranges::find_if(
      header_->entries, [&](const Entry& entry) { return entry.state != Entry::State::none && entry.key == key; });
  return found == header_->entries.end() ? nullptr : &*found;
}

SharedCache::Entry* SharedCache::vacant() {
  for (int turn = 0; turn < 2; ++turn) {
    const auto found =
        std::ranges::find_if(header_->entries, [](const Entry& entry) { return entry.state == Entry::State::none; });
    if (found != header_->entries.end()) return &*found;
    if (!evict_one()) break;
  }
  return nullptr;
}

std::uint64_t SharedCache::turn(std::uint64_t number) {
  const std::lock_guard lock(turns_mutex_);
  return turns_[number]++;
}

SharedCache::Look SharedCache::look(std::uint64_t key, Pinned& pinned) {
  pinned = {};  // before the lock, which unpinning needs
  const Lock lock(*this);
  if (!lock) return Look::full;
  Entry* entry = find(key);
  if (entry == nullptr) {
    entry = vacant();
    if (entry == nullptr) return Look::full;
    *entry = Entry{.key = key, .state = Entry::State::claimed, .maker = ::getpid()};
    return Look::claimed;
  }
  if (entry->state == Entry::State::claimed) return Look::busy;
  pinned = pin(*entry);
  return Look::ready;
}

SharedCache::Pinned SharedCache::pin(Entry& entry) {
  ++entry.pins;
  auto* bytes = bytes_ + entry.begin;
  const auto number = static_cast<std::size_t>(&entry - header_->entries.data());  // stays the same while it is pinned
  auto unpin = [cache = shared_from_this(), number](const void*) { cache->unpin(number); };
  return {std::shared_ptr<const void>(bytes, std::move(unpin)), {bytes, entry.size}};
}

/// The lowest place with so much room, or 0.
std::size_t SharedCache::gap(std::size_t size) const {
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  for (const Entry& entry : header_->entries)
    if (entry.state != Entry::State::none && entry.size > 0) taken.emplace_back(entry.begin, rounded(entry.size));
  std::ranges::sort(taken);
  std::size_t begin = kPage;
  for (const auto& [at, length] : taken) {
    if (at - begin >= size) return begin;
    begin = at + length;
  }
  return header_->capacity - begin >= size ? begin : 0;
}

bool SharedCache::evict_one() {
  Entry* oldest = nullptr;
  for (Entry& entry : header_->entries)
    if (entry.state == Entry::State::ready && entry.pins == 0 && (oldest == nullptr || entry.made < oldest->made))
      oldest = &entry;
  if (oldest == nullptr) return false;
  *oldest = Entry{};
  return true;
}

std::span<std::byte> SharedCache::room(std::uint64_t key, std::size_t size, bool evict) {
  const Lock lock(*this);
  if (!lock || size == 0) return {};
  Entry* entry = find(key);
  if (entry == nullptr) return {};
  if (entry->pins > 0) {  // somebody still uses what it had before
    Entry* fresh = vacant();
    if (fresh == nullptr) return {};
    *fresh = Entry{.key = key, .state = Entry::State::claimed, .maker = entry->maker};
    disown(*entry);
    entry = fresh;
  }
  entry->size = 0;  // what it had before is free
  std::size_t begin = gap(rounded(size));
  while (begin == 0 && evict && evict_one()) begin = gap(rounded(size));
  if (begin == 0) return {};
  const std::size_t end = begin + rounded(size);
  if (end > header_->allocated) {  // memory that is missing must be an error here, not a signal when it is written
    const auto from = static_cast<off_t>(header_->allocated);
    if (::posix_fallocate(bytes_file_.get(), from, static_cast<off_t>(end) - from) != 0) return {};
    header_->allocated = end;
  }
  entry->begin = begin;
  entry->size = size;
  return {bytes_ + begin, size};
}

SharedCache::Pinned SharedCache::publish(std::uint64_t key) {
  Pinned pinned;
  const Lock lock(*this);
  if (!lock) return pinned;
  if (Entry* entry = find(key)) {
    entry->state = Entry::State::ready;
    entry->made = ++header_->made;
    pinned = pin(*entry);
  }
  changed();
  return pinned;
}

void SharedCache::abandon(std::uint64_t key) {
  const Lock lock(*this);
  if (!lock) return;
  if (Entry* entry = find(key)) disown(*entry);
  changed();
}

std::shared_ptr<const void> SharedCache::hold(std::uint64_t key) {
  const Lock lock(*this);
  Entry* entry = lock ? find(key) : nullptr;
  return entry == nullptr ? nullptr : pin(*entry).hold;
}

void SharedCache::done(std::uint64_t key) {
  const Lock lock(*this);
  if (!lock) return;
  if (Entry* entry = find(key); entry != nullptr && entry->state == Entry::State::ready) {
    ++entry->done;
    drop_if_unused(*entry);
  }
}

void SharedCache::unpin(std::size_t number) {
  const Lock lock(*this);
  if (!lock) return;
  Entry& entry = header_->entries[number];
  --entry.pins;
  if (entry.state == Entry::State::ready) drop_if_unused(entry);
}

/// Its memory is free when nobody uses it any more, and nobody finds it.
void SharedCache::disown(Entry& entry) {
  if (entry.pins == 0) {
    entry = Entry{};
    return;
  }
  entry.key = 0;
  entry.state = Entry::State::ready;
  entry.done = INT32_MAX;
}

void SharedCache::drop_if_unused(Entry& entry) {
  if (entry.pins == 0 && entry.done >= header_->ranks) entry = Entry{};
}

void SharedCache::changed() {
  ++header_->changes;
  sys::futex_wake(header_->changes);
}

std::uint32_t SharedCache::changes() const { return is_here() ? header_->changes.load() : 0; }

bool SharedCache::fits(std::size_t size) {
  const Lock lock(*this);
  return lock && gap(rounded(size)) != 0;
}

void SharedCache::wait(std::uint32_t seen, std::chrono::milliseconds timeout) {
  {
    const Lock lock(*this);
    if (!lock) return;
    for (Entry& entry : header_->entries) {
      if (entry.state != Entry::State::claimed || ::kill(entry.maker, 0) == 0 || errno != ESRCH) continue;
      entry = Entry{};
      changed();
      return;
    }
  }
  sys::futex_wait(header_->changes, seen, now() + timeout);
}

}  // namespace lockstep::data
