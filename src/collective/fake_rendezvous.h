#pragma once

#include <lockstep/error.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <new>
#include <string>

#include "collective/futex.h"
#include "collective/rendezvous.h"

namespace lockstep::collective {

/// A store for tests and measurements: made before fork(), it serves the process and its children. Holds 256 keys.
class FakeRendezvous : public Rendezvous {
 public:
  FakeRendezvous() {
    void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EngineError("[collective] no memory for a store");
    table_ = new (memory) Table;
  }
  ~FakeRendezvous() override { ::munmap(table_, sizeof(Table)); }
  FakeRendezvous(const FakeRendezvous&) = delete;
  FakeRendezvous& operator=(const FakeRendezvous&) = delete;

  /// A key may be set again: the last value counts.
  void set(const std::string& key, const std::string& value) override {
    Entry& entry = table_->entries.at(table_->used.fetch_add(1));
    copy(entry.key, key);
    copy(entry.value, value);
    entry.ready.store(1);
    table_->changes.fetch_add(1);
    futex_wake(table_->changes);
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const Instant deadline = now() + timeout;
    for (bool in_time = true; in_time;) {
      const std::uint32_t changes = table_->changes.load();
      for (std::size_t i = table_->entries.size(); i-- > 0;) {
        Entry& entry = table_->entries[i];
        if (entry.ready.load() != 0 && key == entry.key.data()) return entry.value.data();
      }
      in_time = futex_wait(table_->changes, changes, deadline);
    }
    throw TimeoutError("[collective] nobody set " + key + " in the store");
  }

 private:
  struct Entry {
    Word ready{0};
    std::array<char, 64> key{};
    std::array<char, 1024> value{};
  };
  struct Table {
    Word used{0};
    Word changes{0};
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
