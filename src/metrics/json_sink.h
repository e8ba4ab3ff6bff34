#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "metrics/append_file.h"
#include "metrics/sink.h"

namespace lockstep::metrics {

/// result.json, or a file of another `name`: one JSON object per line, keys in the result's order. start() cuts off an
/// incomplete last line, which a killed driver left.
class JsonSink final : public ReportSink {
 public:
  explicit JsonSink(const std::filesystem::path& directory, sys::Files& files = sys::files(),
                    const std::string& name = "result.json")
      : file_(files, directory / name) {}
  ~JsonSink() override;

  void start(const Value& config) override;
  void write(const Value& result, long step) override;
  void flush() override { file_.flush(); }
  void close() override { file_.close(); }

 private:
  /// The key at this position of the previous result, with its JSON text up to the value.
  struct Slot {
    std::string key;
    std::string text;
  };

  AppendFile file_;
  Value config_;
  std::string config_text_;
  std::vector<Slot> slots_;
};

/// Removes the last line of a file that no sink has open.
void cut_last_line(sys::Files& files, const std::filesystem::path& path);

}  // namespace lockstep::metrics
