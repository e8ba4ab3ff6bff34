#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "store/part_writer.h"
#include "sys/shared_memory.h"
#include "sys/sockets.h"
#include "wire/codec.h"
#include "wire/handover.h"
#include "worker/worker_session.h"

namespace lockstep::worker {

/// A session whose driver is this test.
class WorkerSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    directory =
        std::filesystem::path(testing::TempDir()) /
        ("session_" + std::to_string(getpid()) + "_" + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory);
  }
  void TearDown() override {
    session.reset();
    std::filesystem::remove_all(directory);
  }

  void begin(wire::Begin begin) {
    auto [mine, theirs] = sys::socket_pair();
    driver.emplace(std::move(mine));
    driver->send(wire::encode(begin));
    session.emplace(theirs.release());
  }

  wire::Begin rank(int number, int world_size = 2) {
    wire::Begin made;
    made.rank = number;
    made.world_size = world_size;
    made.storage = directory;
    made.heartbeat_interval = 60;
    return made;
  }

  /// The next message for the driver. A checkpoint that is handed over is stored first, as the agent does.
  wire::WorkerToDriver receive() {
    for (;;) {
      const auto frame = driver->receive(now() + 10s);
      if (!frame) throw std::runtime_error("nothing came");
      if (!wire::holds<wire::CheckpointHeld>(*frame)) return wire::decode<wire::WorkerToDriver>(*frame);
      const auto held = wire::decode_one<wire::CheckpointHeld>(*frame);
      if (const auto written = store(held)) return *written;
    }
  }
  std::optional<wire::CheckpointWritten> store(const wire::CheckpointHeld& held) {
    const sys::Descriptor fd = driver->take_descriptor();
    const wire::HeldFile& last = held.files.back();
    const auto memory = sys::map_shared(fd.get(), static_cast<std::uint64_t>(last.offset + last.size));
    std::vector<store::MemoryFile> files;
    for (const auto& [name, offset, size] : held.files)
      files.push_back({name, memory.bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size))});
    wire::CheckpointWritten written{held.report, held.partial, {}, {}, held.score};
    std::string error;
    try {
      store::PartWriter writer(sys::files(), std::filesystem::path(held.storage) / held.partial);
      written.files = writer.write_files(files);
    } catch (const StorageError& problem) {
      error = problem.what();
    }
    try {
      driver->send(wire::encode(wire::CheckpointStored{held.report, error}));
    } catch (const EngineError&) {
      // The worker is dead.
    }
    return error.empty() ? std::optional(written) : std::nullopt;
  }
  /// Stores one checkpoint, which fails. Drops what comes before it.
  void fail_to_store() {
    for (;;) {
      const auto frame = driver->receive(now() + 10s).value();
      if (!wire::holds<wire::CheckpointHeld>(frame)) continue;
      EXPECT_FALSE(store(wire::decode_one<wire::CheckpointHeld>(frame)));
      return;
    }
  }

  template <class M>
  M next() {
    for (;;) {
      auto message = receive();
      if (auto* found = std::get_if<M>(&message)) return std::move(*found);
      if (!std::holds_alternative<wire::Heartbeat>(message)) throw std::runtime_error("another message came");
    }
  }

  template <class M>
  M next_but_reports() {
    for (;;) {
      auto message = receive();
      if (auto* found = std::get_if<M>(&message)) return std::move(*found);
    }
  }

  std::filesystem::path directory;
  std::optional<wire::Channel> driver;
  std::optional<WorkerSession> session;
};

}  // namespace lockstep::worker
