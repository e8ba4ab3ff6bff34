#include "metrics/json_sink.h"

#include <lockstep/error.h>

#include "base/json.h"
#include "metrics/flatten.h"

namespace lockstep::metrics {
namespace {

void cut_torn_line(sys::Files& files, const std::filesystem::path& path) {
  const sys::Mapping existing = map_existing(files, path);
  const std::string_view text = text_of(existing);
  if (text.empty() || text.back() == '\n') return;
  const auto end = text.rfind('\n');
  cut_file(files, path, end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace

void cut_last_line(sys::Files& files, const std::filesystem::path& path) {
  std::size_t end = 0;
  {
    const sys::Mapping existing = map_existing(files, path);
    const std::string_view text = text_of(existing);
    if (text.size() < 2) return;
    const auto before = text.rfind('\n', text.size() - 2);
    end = before == std::string_view::npos ? 0 : before + 1;
  }
  cut_file(files, path, end);
}

JsonSink::~JsonSink() {
  try {
    close();
  } catch (const StorageError&) {  // callers that need the error call close()
  }
}

void JsonSink::start(const Value& config) {
  cut_torn_line(file_.files(), file_.path());
  file_.open(sys::OpenMode::append);
  config_ = config;
  config_text_ = to_json(config);
}

void JsonSink::write(const Value& result, long /*step*/) {
  std::string& out = file_.buffer();
  out += '{';
  std::size_t i = 0;
  for (const auto& [key, value] : result.get_ref<const Value::object_t&>()) {
    if (i == slots_.size()) slots_.emplace_back();
    Slot& slot = slots_[i];
    if (slot.key != key || slot.text.empty()) {
      slot.key = key;
      slot.text = i > 0 ? ", " : "";
      append_json_string(slot.text, key);
      slot.text += ": ";
    }
    out += slot.text;
    // Comparing is several times cheaper than encoding the configuration again for every report.
    if (key == kConfigKey && value == config_)
      out += config_text_;
    else
      append_json(out, value);
    ++i;
  }
  out += "}\n";
  file_.end_record();
}

}  // namespace lockstep::metrics
