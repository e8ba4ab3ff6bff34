#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/append_file.h"
#include "metrics/sink.h"

namespace lockstep::metrics {

/// events.out.tfevents.<time>.<hostname>.<n>: an event file for TensorBoard, a new one at every start(). Each result is
/// one event with a scalar for every number or bool, and with the JSON of summary() for every array, as a text; the tag
/// is its key, nested keys joined by `/`. The run's configuration, which never changes, is written once at the start,
/// as hyperparameters for the tab HPARAMS.
///
/// The format is TFRecord (length, its masked CRC-32C, data, its masked CRC-32C) around protobuf messages `Event`,
/// written by hand, because the protobuf library would clash with the one inside TensorFlow.
class TensorBoardSink final : public ReportSink {
 public:
  explicit TensorBoardSink(std::filesystem::path directory, sys::Files& files = sys::files())
      : directory_(std::move(directory)), file_(files, "") {}
  ~TensorBoardSink() override;

  void start(const Value& config) override;
  void write(const Value& result, long step) override;
  void flush() override { file_.flush(); }
  void close() override { file_.close(); }

 private:
  /// The n-th scalar of the previous result: its key, and its Summary.Value up to the number.
  struct Slot {
    std::string key;
    std::string encoded;
  };
  void append_scalar(std::string_view key, float number, std::size_t position);
  void append_text(std::string_view key, std::string_view text);
  void append_record(std::string_view event);

  std::filesystem::path directory_;
  AppendFile file_;
  Value config_;
  std::vector<Slot> slots_;
  std::string summary_, event_, prefix_;  ///< scratch
};

}  // namespace lockstep::metrics
