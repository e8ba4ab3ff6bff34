#include "store/data_json.h"

#include <lockstep/array.h>
#include <lockstep/error.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::store {
namespace {

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(const Bytes& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kBase64[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<Bytes> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=') && text.size() % 4 != 1) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  Bytes bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const auto digit = std::string_view(kBase64, 64).find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
  }
  return bytes;
}

bool has_reserved_key(const Value& object) {
  for (auto item = object.begin(); item != object.end(); ++item)
    if (item.key().starts_with('$')) return true;
  return false;
}

class Encoder {
 public:
  explicit Encoder(const std::function<bool(const std::string&)>& is_tensor) : is_tensor_(is_tensor) {}

  Value encode(const Value& value, int depth) const {
    // A reserved object adds up to three levels, and the reader checks the depth of what was written.
    if (depth > kMaxJsonDepth / 4)
      throw ConfigError("[checkpoint] the dict is nested more than " + std::to_string(kMaxJsonDepth / 4) +
                        " levels deep; make it flatter");
    switch (value.type()) {
      case Value::value_t::object:
        return encode_object(value, depth);
      case Value::value_t::array: {
        Value list = Value::array();
        for (const auto& item : value) list.push_back(encode(item, depth + 1));
        return list;
      }
      case Value::value_t::number_float: {
        const double number = value.get<double>();
        if (std::isfinite(number)) return value;
        return Value{{"$float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
      }
      case Value::value_t::binary:
        if (array_in(value))
          throw ConfigError(
              "[checkpoint] the dict has an array or a tensor among its plain values; store tensors as parameters or "
              "buffers of a module, or its elements as a list");
        return Value{{"$bytes", to_base64(value.get_binary())}};
      default:
        return value;
    }
  }

 private:
  Value encode_object(const Value& object, int depth) const {
    if (const auto tensor = object.find("$tensor"); tensor != object.end() && tensor == object.begin()) {
      if (tensor->is_string() && is_tensor_(tensor->get<std::string>())) return object;
      throw ConfigError("[checkpoint] the dict refers to the array " + to_json(*tensor) +
                        ", which is not among the tensors given");
    }
    if (!has_reserved_key(object)) {
      Value dict = Value::object();
      // push_back, unlike operator[], does not search for the key.
      auto& items = dict.get_ref<Value::object_t&>();
      for (auto item = object.begin(); item != object.end(); ++item)
        items.push_back({item.key(), encode(item.value(), depth + 1)});
      return dict;
    }
    Value pairs = Value::array();
    for (auto item = object.begin(); item != object.end(); ++item)
      pairs.push_back(Value::array({item.key(), encode(item.value(), depth + 1)}));
    return Value{{"$dict", std::move(pairs)}};
  }

  const std::function<bool(const std::string&)>& is_tensor_;
};

std::optional<Value> decode_pairs(const Value& pairs) {
  if (!pairs.is_array()) return std::nullopt;
  Value dict = Value::object();
  for (const auto& pair : pairs) {
    if (!pair.is_array() || pair.size() != 2) return std::nullopt;
    const std::string key = pair[0].is_string() ? pair[0].get<std::string>() : to_json(pair[0]);
    if (dict.contains(key)) return std::nullopt;
    dict[key] = decode_data(pair[1]);
  }
  return dict;
}

std::optional<Value> decode_reserved(const std::string& word, const Value& content) {
  if (word == "$dict" || word == "$ordered_dict" || word == "$counter") return decode_pairs(content);
  if ((word == "$tuple" || word == "$torch_size") && content.is_array()) return decode_data(content);
  if (word == "$float") {
    if (content == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (content == "inf") return std::numeric_limits<double>::infinity();
    if (content == "-inf") return -std::numeric_limits<double>::infinity();
  }
  if (word == "$bytes" && content.is_string()) {
    if (auto bytes = from_base64(content.get_ref<const std::string&>())) return Value::binary(std::move(*bytes));
  }
  return std::nullopt;
}

}  // namespace

Value encode_data(const Value& plain, const std::function<bool(const std::string&)>& is_tensor) {
  return Encoder(is_tensor).encode(plain, 0);
}

Value decode_data(const Value& encoded) {
  if (encoded.is_array()) {
    Value list = Value::array();
    for (const auto& item : encoded) list.push_back(decode_data(item));
    return list;
  }
  if (!encoded.is_object()) return encoded;
  const bool has_metadata = encoded.size() == 2 && encoded.contains("$ordered_dict") && encoded.contains("metadata");
  if ((encoded.size() == 1 || has_metadata) && encoded.begin().key().starts_with('$')) {
    if (auto decoded = decode_reserved(encoded.begin().key(), encoded.begin().value())) return std::move(*decoded);
    return encoded;
  }
  if (has_reserved_key(encoded)) return encoded;
  Value dict = Value::object();
  auto& items = dict.get_ref<Value::object_t&>();
  for (auto item = encoded.begin(); item != encoded.end(); ++item)
    items.push_back({item.key(), decode_data(item.value())});
  return dict;
}

}  // namespace lockstep::store
