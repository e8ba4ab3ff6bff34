#include "dashboard/run_details.h"

#include <lockstep/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "dashboard/checkpoints.h"
#include "dashboard/page_json.h"
#include "store/run_directory.h"
#include "store/run_view.h"

namespace lockstep::dashboard {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestParams = std::uint64_t{1} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 20;

Value params_of(const fs::path& path, sys::Files& files) {
  try {
    const fs::path file = path / "params.json";
    if (files.info(file).size > kLargestParams) return "params.json is too large to be shown";
    return parse_json(files.read_text(file), "params.json");
  } catch (const StorageError&) {
    return nullptr;
  }
}

Value logs_of(const fs::path& path, sys::Files& files) {
  Value logs = Value::array();
  try {
    for (const auto& item : files.list(path / "logs"))
      if (item.kind == sys::FileKind::file && valid_utf8(item.name) == item.name)
        logs.push_back({{"name", item.name}, {"size", files.info(path / "logs" / item.name).size}});
  } catch (const StorageError&) {
    // There are none yet.
  }
  return logs;
}

Value checkpoints_of(const store::RunView& view, sys::Files& files) {
  Value all = Value::array();
  for (const ShownCheckpoint& each : shown_checkpoints(view, files))
    all.push_back({{"seq", each.seq},
                   {"name", store::RunDirectory::checkpoint_name(each.seq)},
                   {"score", each.score ? Value(*each.score) : Value(nullptr)},
                   {"size", each.size},
                   {"files", each.files},
                   {"attempt", each.attempt},
                   {"world_size", each.world_size},
                   {"created", or_null(each.created)},
                   {"iteration", number_in<std::int64_t>(each.metrics, "training_iteration")},
                   {"problem", each.problem}});
  return all;
}

/// The length of `text` without an incomplete character at its end.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // inside a character: look for its beginning
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

std::string run_json(const std::string& id, const fs::path& path, sys::BeneathFiles& files) {
  const store::RunView view = store::RunView::read(path, store::OddFields::ignore, files);
  const auto duration = view.duration();
  Value value = {{"id", id},
                 {"name", path.filename().string()},
                 {"path", path.native()},
                 {"state", view.state()},
                 {"duration", duration ? Value(*duration) : Value(nullptr)},
                 {"record", view.record.to_value()},
                 {"params", params_of(path, files)},
                 {"score_attribute", view.checkpoint_config.score_attribute},
                 {"score_order", view.checkpoint_config.score_order},
                 {"checkpoints", checkpoints_of(view, files)},
                 {"logs", logs_of(path, files)}};
  return page_json(std::move(value)) + "\n";
}

std::string log_json(const fs::path& path, const std::string& name, std::int64_t from, std::int64_t most,
                     sys::BeneathFiles& files) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw ConfigError("[dashboard] " + in_quotes(name) + " is not the name of a log");
  const sys::OpenFile file = files.open(path / "logs" / name, sys::OpenMode::read);
  const auto size = static_cast<std::int64_t>(sys::info_of(file).size);
  most = std::clamp<std::int64_t>(most, 1024, kMostBytes);
  if (from < 0) from = std::max<std::int64_t>(0, size - most);
  from = std::min(from, size);
  std::string bytes(static_cast<std::size_t>(std::min(most, size - from)), '\0');
  const ssize_t count = ::pread(file.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(from));
  if (count < 0) sys::throw_file_error("read", file.path, errno);
  bytes.resize(static_cast<std::size_t>(count));
  const bool is_end = from + count >= size;
  if (!is_end) bytes.resize(whole_characters(bytes));
  const auto next = from + static_cast<std::int64_t>(bytes.size());
  return page_json({{"size", size}, {"from", from}, {"next", next}, {"text", bytes}}) + "\n";
}

}  // namespace lockstep::dashboard
