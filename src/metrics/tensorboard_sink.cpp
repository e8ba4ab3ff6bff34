#include "metrics/tensorboard_sink.h"

#include <lockstep/array.h>
#include <lockstep/error.h>

#include <bit>
#include <cstring>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "metrics/crc32c.h"
#include "metrics/flatten.h"
#include "sys/node.h"

namespace lockstep::metrics {
namespace {

// Field number << 3 | wire type, of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr char kEventWallTime = 1 << 3 | 1;
constexpr char kEventStep = 2 << 3 | 0;
constexpr char kEventFileVersion = 3 << 3 | 2;
constexpr char kEventSummary = 5 << 3 | 2;
constexpr char kSummaryValue = 1 << 3 | 2;
constexpr char kValueTag = 1 << 3 | 2;
constexpr char kValueSimpleValue = 2 << 3 | 5;

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

template <class Number>
void append_fixed(std::string& out, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

void append_varint(std::string& out, std::uint64_t number) {
  for (; number >= 128; number >>= 7) out += static_cast<char>(number | 128);
  out += static_cast<char>(number);
}

void append_bytes(std::string& out, char field, std::string_view bytes) {
  out += field;
  append_varint(out, bytes.size());
  out += bytes;
}

// plugins/hparams/plugin_data.proto of TensorBoard, and google.protobuf.Value.
constexpr char kValueTensor = 8 << 3 | 2;
constexpr char kValueMetadata = 9 << 3 | 2;
constexpr char kFirstBytes =
    1 << 3 | 2;  // SummaryMetadata.plugin_data, .plugin_name, SessionStartInfo.hparams, map key
constexpr char kSecondBytes = 2 << 3 | 2;  // PluginData.content, map value
constexpr char kSessionStartInfo = 3 << 3 | 2;
constexpr char kSessionStartTime = 5 << 3 | 1;
constexpr char kAnyNumber = 2 << 3 | 1;
constexpr char kAnyText = 3 << 3 | 2;
constexpr char kAnyBool = 4 << 3 | 0;
constexpr std::size_t kLongestHyperparameter = 200;  ///< of a text in the table of hyperparameters

std::string hyperparameter(std::string_view key, const Value& value) {
  std::string any;
  if (value.is_boolean()) {
    any += kAnyBool;
    any += value.get<bool>() ? '\1' : '\0';
  } else if (value.is_number()) {
    any += kAnyNumber;
    append_fixed(any, value.get<double>());
  } else {
    const std::string text = value.is_string() ? value.get<std::string>() : to_json(with_summaries(value));
    append_bytes(any, kAnyText, valid_utf8(first_characters(text, kLongestHyperparameter)));
  }
  std::string pair;
  append_bytes(pair, kFirstBytes, valid_utf8(key));
  append_bytes(pair, kSecondBytes, any);
  return pair;
}

// tensorflow/core/framework/tensor.proto.
constexpr char kTensorType = 1 << 3 | 0;
constexpr char kTensorShape = 2 << 3 | 2;
constexpr char kTensorText = 8 << 3 | 2;
constexpr char kTypeText = 7;  ///< DT_STRING

/// The summary that lists a run in TensorBoard's tab HPARAMS; empty if the configuration is.
std::string hyperparameters(const Value& config) {
  std::string info, prefix;
  if (config.is_object())
    for_each_leaf(config, prefix, [&](std::string_view key, const Value& value) {
      append_bytes(info, kFirstBytes, hyperparameter(key, value));
    });
  if (info.empty()) return {};
  info += kSessionStartTime;
  append_fixed(info, unix_seconds(wall_now()));
  std::string data, plugin, metadata, value, summary;
  append_bytes(data, kSessionStartInfo, info);
  append_bytes(plugin, kFirstBytes, "hparams");
  append_bytes(plugin, kSecondBytes, data);
  append_bytes(metadata, kFirstBytes, plugin);
  append_bytes(value, kValueTag, "_hparams_/session_start_info");
  // The plugin reads the metadata alone, but readers want a tensor: DT_FLOAT of shape [0].
  append_bytes(value, kValueTensor, std::string_view("\x08\x01\x12\x02\x12\x00", 6));
  append_bytes(value, kValueMetadata, metadata);
  append_bytes(summary, kSummaryValue, value);
  return summary;
}

void append_wall_time(std::string& out) {
  out += kEventWallTime;
  append_fixed(out, unix_seconds(wall_now()));
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

}  // namespace

TensorBoardSink::~TensorBoardSink() {
  try {
    close();
  } catch (const StorageError&) {  // callers that need the error call close()
  }
}

void TensorBoardSink::start(const Value& config) {
  config_ = config;
  const auto time = static_cast<long long>(unix_seconds(wall_now()));
  const std::string stem = "events.out.tfevents." + std::to_string(time) + "." + sys::host_name() + ".";
  // TensorBoard reads the files in the order of their names.
  for (int n = 0;; ++n) {
    const auto path = directory_ / (stem + std::to_string(n));
    if (file_.files().info(path, false).kind != sys::FileKind::none) continue;
    file_ = AppendFile(file_.files(), path);
    break;
  }
  file_.open(sys::OpenMode::create);
  event_.clear();
  append_wall_time(event_);
  append_bytes(event_, kEventFileVersion, "brain.Event:2");
  append_record(event_);
  const std::string hparams = hyperparameters(config);
  if (hparams.empty()) return;
  event_.clear();
  append_wall_time(event_);
  append_bytes(event_, kEventSummary, hparams);
  append_record(event_);
}

void TensorBoardSink::write(const Value& result, long step) {
  summary_.clear();
  std::size_t position = 0;
  const auto add = [&](std::string_view key, const Value& value) {
    if (value.is_number())
      append_scalar(key, static_cast<float>(value.get<double>()), position++);
    else if (value.is_boolean())
      append_scalar(key, value.get<bool>() ? 1.0F : 0.0F, position++);
    else if (const auto array = array_in(value))
      append_text(key, to_json(summary(*array)));
  };
  for (const auto& [key, value] : result.get_ref<const Value::object_t&>()) {
    const bool is_config = key == kConfigKey && value == config_;
    if (!is_config) for_each_leaf_at(key, value, prefix_, add);
  }
  event_.clear();
  append_wall_time(event_);
  event_ += kEventStep;
  append_varint(event_, static_cast<std::uint64_t>(step));
  append_bytes(event_, kEventSummary, summary_);
  append_record(event_);
}

void TensorBoardSink::append_scalar(std::string_view key, float number, std::size_t position) {
  if (position >= slots_.size()) slots_.resize(position + 1);
  Slot& slot = slots_[position];
  if (slot.key != key || slot.encoded.empty()) {
    slot.key = key;
    std::string value;
    append_bytes(value, kValueTag, valid_utf8(key));
    value += kValueSimpleValue;
    slot.encoded = kSummaryValue;
    append_varint(slot.encoded, value.size() + sizeof number);
    slot.encoded += value;
  }
  summary_ += slot.encoded;
  append_fixed(summary_, number);
}

void TensorBoardSink::append_text(std::string_view key, std::string_view text) {
  std::string plugin, metadata, tensor, value;
  append_bytes(plugin, kFirstBytes, "text");
  append_bytes(metadata, kFirstBytes, plugin);
  tensor += {kTensorType, kTypeText};
  append_bytes(tensor, kTensorShape, "");
  append_bytes(tensor, kTensorText, text);
  append_bytes(value, kValueTag, valid_utf8(key));
  append_bytes(value, kValueTensor, tensor);
  append_bytes(value, kValueMetadata, metadata);
  append_bytes(summary_, kSummaryValue, value);
}

void TensorBoardSink::append_record(std::string_view event) {
  std::string& out = file_.buffer();
  std::string length;
  append_fixed(length, static_cast<std::uint64_t>(event.size()));
  out += length;
  append_fixed(out, masked_crc(length));
  out += event;
  append_fixed(out, masked_crc(event));
  file_.end_record();
}

}  // namespace lockstep::metrics
