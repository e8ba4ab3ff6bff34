#pragma once

#include <lockstep/error.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <new>
#include <string>

#include "collective/key_value_store.h"
#include "sys/futex.h"

namespace lockstep::collective {

/// A store for tests and measurements. Made before fork(), it serves the process and its children. Holds at most 256
/// keys.
class FakeKeyValueStore : public KeyValueStore {
 public:
  FakeKeyValueStore() {
    void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EngineError("[collective] no memory for a store");
    table_ = new (memory) Table;
  }
  ~FakeKeyValueStore() override { ::munmap(table_, sizeof(Table)); }
  FakeKeyValueStore(const FakeKeyValueStore&) = delete;
  FakeKeyValueStore& operator=(const FakeKeyValueStore&) = delete;

  /// If a key is set again, the last value counts.
  void set(const std::string& key, const std::string& value) override {
    Entry& entry = table_->entries.at(table_->used.fetch_add(1));
    copy(entry.key, key);
    copy(entry.value, value);
    entry.ready.store(1);
    table_->changes.fetch_add(1);
    sys::futex_wake(table_->changes);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const Instant deadline = now() + timeout;
    for (bool in_time = true; in_time;) {
      const std::uint32_t changes = table_->changes.load();
      for (std::size_t i = table_->entries.size(); i-- > 0;) {
        Entry& entry = table_->entries[i];
        if (entry.ready.load() != 0 && key == entry.key.data()) return entry.value.data();
      }
      in_time = sys::futex_wait(table_->changes, changes, deadline);
    }
    throw TimeoutError("[collective] nobody set " + key + " in the store");
  }

 private:
  struct Entry {
    sys::Word ready{0};
    std::array<char, 64> key{};
    std::array<char, 1024> value{};
  };
  struct Table {
    sys::Word used{0};
    sys::Word changes{0};
    std::array<Entry, 256> entries;
  };

  template <std::size_t Size>
  static void copy(std::array<char, Size>& to, const std::string& from) {
    if (from.size() >= Size) throw ConfigError("[collective] too long for the store: " + from);
    std::memcpy(to.data(), from.c_str(), from.size() + 1);
  }

  Table* table_;
};

}  // namespace lockstep::collective
