#include "worker/checkpoint_queue.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "store/positions.h"
#include "store/safetensors.h"
#include "store/score.h"
#include "sys/private_files.h"
#include "wire/codec.h"

namespace lockstep::worker {
namespace {

constexpr std::int64_t kPage = 4096;

std::span<const std::byte> bytes_of(const Bytes& bytes) { return std::as_bytes(std::span(bytes)); }

/// Throws ConfigError if the user has a file of his own under the name of one of Lockstep's.
void check_positions_in(const Checkpoint& checkpoint) {
  const auto names = checkpoint.files();
  if (std::find(names.begin(), names.end(), store::kPositionsName) == names.end()) return;
  try {
    store::decode_positions(checkpoint.read(store::kPositionsName));
  } catch (const StorageError& error) {
    throw ConfigError(std::string("[checkpoint] the file name \"") + store::kPositionsName +
                      "\" is Lockstep's own; give the file another name (" + error.what() + ")");
  }
}

std::set<std::string> names_of(const CheckpointQueue::OwnFiles& own) {
  std::set<std::string> names{store::kPositionsName};
  for (const auto& [name, bytes] : own) names.insert(name);
  return names;
}

/// Its files, without those that Lockstep writes itself.
std::vector<std::pair<std::string, Bytes>> users_files(const Checkpoint& checkpoint, const std::set<std::string>& own) {
  std::vector<std::pair<std::string, Bytes>> files;
  for (const auto& name : checkpoint.files())
    if (!own.contains(name)) files.emplace_back(name, checkpoint.read(name));
  return files;
}

std::vector<store::MemoryFile> memory_files(const std::vector<std::pair<std::string, Bytes>>& files) {
  std::vector<store::MemoryFile> views;
  for (const auto& [name, bytes] : files) views.push_back({name, bytes_of(bytes)});
  return views;
}

std::optional<double> score_of(const store::DictParts& parts, const std::string& attribute) {
  if (attribute.empty()) return std::nullopt;
  return store::score_in(parts.data, attribute,
                         [&] { return std::vector<Tensor>(parts.tensors.begin(), parts.tensors.end()); });
}

std::optional<double> score_of(const Checkpoint& checkpoint, const std::string& attribute) {
  if (attribute.empty()) return std::nullopt;
  try {
    return store::score_of(checkpoint, attribute);
  } catch (const StorageError&) {
    return std::nullopt;  // a data.json of the user's own
  }
}

}  // namespace

/// With a memory tier the agent keeps two, a third is being hashed or written, and a fourth copied. One more, so that
/// the function does not wait while an older one is on its way to the disk.
CheckpointQueue::CheckpointQueue(Options options, Outbox& outbox)
    : options_(std::move(options)),
      outbox_(outbox),
      regions_(options_.persist_every > 1 ? 5
               : options_.skip_when_busy  ? 3
                                          : 2) {}

// ---------------------------------------------------------------- what the agent has done

void CheckpointQueue::check() {
  const std::lock_guard lock(mutex_);
  if (!error_.empty()) throw StorageError(error_);
}

void CheckpointQueue::stored(const wire::CheckpointStored& answer) {
  {
    const std::lock_guard lock(mutex_);
    for (Region& region : regions_) {
      if (region.report != answer.report) continue;
      region.is_safe = true;
      if (answer.free) region.report.reset();
    }
    if (error_.empty()) error_ = answer.error;
  }
  changed_.notify_all();
}

void CheckpointQueue::wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return closed_ ||
             std::ranges::none_of(regions_, [](const Region& region) { return region.report && !region.is_safe; });
    });
  }
  check();
}

void CheckpointQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Region& region : regions_) region.memory.reset();
  }
  changed_.notify_all();
}

std::size_t CheckpointQueue::free_region() {
  std::size_t found = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const auto free = std::ranges::find_if(regions_, [](const Region& region) { return !region.report; });
      found = static_cast<std::size_t>(free - regions_.begin());
      return closed_ || free != regions_.end();
    });
    if (closed_) throw EngineError("[session] the run is over; report from the training function before it returns");
  }
  check();
  return found;
}

// ---------------------------------------------------------------- copies

void CheckpointQueue::add_source(std::vector<Source>& sources, std::string name, std::span<const std::byte> bytes) {
  sources.push_back({{std::move(name), 0, static_cast<std::int64_t>(bytes.size())}, [bytes](std::byte* to) {
                       if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
                     }});
}

std::vector<CheckpointQueue::Source> CheckpointQueue::sources_of(const store::DictParts& parts, const OwnFiles& own) {
  std::vector<Source> sources;
  add_source(sources, "data.json", std::as_bytes(std::span(parts.data)));
  if (!parts.tensors.empty()) {
    auto writer = std::make_shared<store::SafetensorsWriter>(parts.tensors);
    sources.push_back({{"tensors.safetensors", 0, static_cast<std::int64_t>(writer->size())}, [writer](std::byte* to) {
                         writer->write([&to](std::span<const std::byte> piece) {
                           if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
                           to += piece.size();
                         });
                       }});
  }
  if (parts.objects) add_source(sources, "objects.pkl", *parts.objects);
  for (const auto& [name, bytes] : own) add_source(sources, name, bytes_of(bytes));
  return sources;
}

std::optional<CheckpointQueue::Copy> CheckpointQueue::copy_to_region(const Place& place,
                                                                     const std::vector<Source>& sources,
                                                                     std::optional<double> score) {
  wire::CheckpointHeld held;
  held.report = place.report;
  held.storage = options_.storage;
  held.trusted = sys::storage_is_trusted();
  held.partial = place.partial;
  held.score = score;
  held.keep = options_.persist_every > 1;
  held.persist = (place.seq + 1) % options_.persist_every == 0;
  held.instead = options_.skip_when_busy;
  std::int64_t end = 0;
  for (const Source& source : sources) {
    wire::HeldFile& file = held.files.emplace_back(source.file);
    file.offset = end;
    end += (file.size + kPage - 1) / kPage * kPage;
  }
  const std::size_t number = free_region();
  sys::SharedMemory& memory = regions_[number].memory;
  try {
    memory.grow(static_cast<std::size_t>(std::max(end, kPage)));
  } catch (const sys::SharedMemoryRefused&) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < sources.size(); ++i) sources[i].put(memory.data() + held.files[i].offset);
  return Copy{place.report, wire::encode(held), number};
}

CheckpointQueue::Copy CheckpointQueue::copy(const Place& place, const store::DictParts& parts, OwnFiles own) {
  check();
  const auto score = score_of(parts, options_.score_attribute);
  if (options_.storage.empty()) return send_contents(place, store::to_files(parts), std::move(own), score);
  if (auto made = copy_to_region(place, sources_of(parts, own), score)) return std::move(*made);
  return write_here_or_fail_later(
      place, own, [&](store::PartWriter& writer) { return writer.write_dict(parts); }, score);
}

CheckpointQueue::Copy CheckpointQueue::copy(const Place& place, const Checkpoint& checkpoint, OwnFiles own) {
  check();
  check_positions_in(checkpoint);
  const auto score = score_of(checkpoint, options_.score_attribute);
  const auto without = names_of(own);
  if (options_.storage.empty()) return send_contents(place, users_files(checkpoint, without), std::move(own), score);
  if (const auto path = checkpoint.path(); path && options_.persist_every == 1) {
    wait();  // the driver commits in order
    auto written = write_here(place, own, [&](auto& writer) { return writer.copy_directory(*path, without); });
    written.score = score;
    return {place.report, wire::encode(written), std::nullopt};
  }
  const auto files = users_files(checkpoint, without);
  std::vector<Source> sources;
  for (const auto& [name, bytes] : files) add_source(sources, name, bytes_of(bytes));
  for (const auto& [name, bytes] : own) add_source(sources, name, bytes_of(bytes));
  if (auto made = copy_to_region(place, sources, score)) return std::move(*made);
  return write_here_or_fail_later(
      place, own, [&](store::PartWriter& writer) { return writer.write_files(memory_files(files)); }, score);
}

CheckpointQueue::Copy CheckpointQueue::send_contents(const Place& place,
                                                     std::vector<std::pair<std::string, Bytes>> contents, OwnFiles own,
                                                     std::optional<double> score) const {
  wire::CheckpointWritten written;
  written.report = place.report;
  written.partial = place.partial;
  written.contents = std::move(contents);
  written.contents.insert(written.contents.end(), std::move_iterator(own.begin()), std::move_iterator(own.end()));
  written.score = score;
  Bytes message = wire::encode(written);
  Outbox::check_size(message);
  return {place.report, std::move(message), std::nullopt};
}

wire::CheckpointWritten CheckpointQueue::write_here(const Place& place, const OwnFiles& own, const Write& write) const {
  wire::CheckpointWritten written;
  written.report = place.report;
  written.partial = place.partial;
  sys::PrivateFiles run;
  run.enter(options_.storage);
  store::PartWriter writer(run, std::filesystem::path(options_.storage) / place.partial);
  written.files = write(writer);
  for (auto& entry : writer.write_files(memory_files(own))) written.files.push_back(std::move(entry));
  return written;
}

/// For a process that may not have shared memory. A disk that refuses is told at the next call, as the agent would.
CheckpointQueue::Copy CheckpointQueue::write_here_or_fail_later(const Place& place, const OwnFiles& own,
                                                                const Write& write, std::optional<double> score) {
  wait();
  try {
    auto written = write_here(place, own, write);
    written.score = score;
    return {place.report, wire::encode(written), std::nullopt};
  } catch (const StorageError& error) {
    stored({place.report, error.what(), true});
    return {place.report, {}, std::nullopt};
  }
}

void CheckpointQueue::hand_over(Copy copy) {
  if (copy.message.empty()) return;
  if (!copy.region) return outbox_.add(std::move(copy.message));
  Region& region = regions_[*copy.region];
  {
    const std::lock_guard lock(mutex_);
    region.report = copy.report;
    region.is_safe = false;
  }
  outbox_.add(std::move(copy.message), region.memory.fd());
}

}  // namespace lockstep::worker
