#include "store/score.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/json.h"
#include "store/data_json.h"

namespace lockstep::store {
namespace {

template <class T>
std::optional<double> element(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  if (index >= bytes.size() / sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return static_cast<double>(value);
}

std::optional<double> element(const Tensor& tensor, std::size_t index) {
  const auto& [name, dtype, shape, bytes] = tensor;
  if (dtype == "F64") return element<double>(bytes, index);
  if (dtype == "F32") return element<float>(bytes, index);
  if (dtype == "I64") return element<std::int64_t>(bytes, index);
  if (dtype == "I32") return element<std::int32_t>(bytes, index);
  if (dtype == "I16") return element<std::int16_t>(bytes, index);
  if (dtype == "I8") return element<std::int8_t>(bytes, index);
  if (dtype == "U64") return element<std::uint64_t>(bytes, index);
  if (dtype == "U32") return element<std::uint32_t>(bytes, index);
  if (dtype == "U16") return element<std::uint16_t>(bytes, index);
  if (dtype == "U8") return element<std::uint8_t>(bytes, index);
  const auto bits = element<std::uint16_t>(bytes, index);
  if (dtype == "F16" && bits) return from_half(static_cast<std::uint16_t>(*bits));
  if (dtype == "BF16" && bits) return std::bit_cast<float>(static_cast<std::uint32_t>(*bits) << 16);
  return std::nullopt;
}

/// The single element of {"$tensor": ...}. Forms with more than a shape and an offset are not plain numbers.
std::optional<double> single_element(const Value& form, const std::vector<Tensor>& tensors) {
  if (form.contains("dtype") || form.contains("layout")) return std::nullopt;
  const auto found =
      std::ranges::find_if(tensors, [&](const Tensor& tensor) { return form["$tensor"] == Value(tensor.name); });
  if (found == tensors.end()) return std::nullopt;
  const Value shape = form.value("shape", Value(found->shape));
  if (!std::ranges::all_of(shape, [](const Value& length) { return length == 1; })) return std::nullopt;
  return element(*found, number_in<std::size_t>(form, "offset"));
}

}  // namespace

std::optional<double> score_in(std::string_view data, const std::string& attribute,
                               const std::function<std::vector<Tensor>()>& tensors) {
  const Value dict = decode_data(parse_json(data, "data.json"));
  const Value* found = find_path(dict, attribute);
  if (found == nullptr) return std::nullopt;
  Value value = *found;
  if (value.is_object() && value.contains("$numpy")) value = decode_data(value.value("value", Value()));
  if (const auto number = number_of(value)) return number;
  if (!value.is_object()) return std::nullopt;
  if (const auto large = value.find("$int"); large != value.end() && large->is_string())
    return std::strtod(large->get_ref<const std::string&>().c_str(), nullptr);
  return value.contains("$tensor") ? single_element(value, tensors()) : std::nullopt;
}

std::optional<double> score_of(const Checkpoint& checkpoint, const std::string& attribute) {
  const auto files = checkpoint.files();
  if (std::ranges::find(files, "data.json") == files.end()) return std::nullopt;
  const Bytes data = checkpoint.read("data.json");
  return score_in({reinterpret_cast<const char*>(data.data()), data.size()}, attribute,
                  [&] { return checkpoint.tensors(); });
}

std::optional<double> score_of(const Checkpoint& checkpoint, const Value& metrics, const std::string& attribute) {
  const auto score = score_of(checkpoint, attribute);
  return score ? score : number_at(metrics, attribute);
}

}  // namespace lockstep::store
