#include <lockstep/array.h>
#include <lockstep/error.h>

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/half.h"
#include "base/text.h"

// An array in a Value is stored as: length of the dtype (1 byte), dtype, number of axes (1 byte), their lengths (8
// bytes each), elements. Numbers are little endian.

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie in memory");

constexpr std::size_t kMostAxes = 64;  // numpy's

template <class T>
Value number_at(const std::uint8_t* at) {
  T number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

struct Dtype {
  std::string_view name;
  std::size_t size;
  Value (*read)(const std::uint8_t*);
};

constexpr std::array kDtypes{
    Dtype{"bool", 1, [](const std::uint8_t* at) { return Value(*at != 0); }},
    Dtype{"int8", 1, number_at<std::int8_t>},
    Dtype{"int16", 2, number_at<std::int16_t>},
    Dtype{"int32", 4, number_at<std::int32_t>},
    Dtype{"int64", 8, number_at<std::int64_t>},
    Dtype{"uint8", 1, number_at<std::uint8_t>},
    Dtype{"uint16", 2, number_at<std::uint16_t>},
    Dtype{"uint32", 4, number_at<std::uint32_t>},
    Dtype{"uint64", 8, number_at<std::uint64_t>},
    Dtype{"float16", 2,
          [](const std::uint8_t* at) {
            std::uint16_t bits;
            std::memcpy(&bits, at, sizeof bits);
            return Value(from_half(bits));
          }},
    Dtype{"float32", 4, number_at<float>},
    Dtype{"float64", 8, number_at<double>},
};

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.name == name) return &dtype;
  return nullptr;
}

/// The number of elements of an array of this shape; nothing if they cannot fit into `most` bytes.
std::optional<std::size_t> count_of(const std::vector<std::int64_t>& shape, std::size_t most) {
  std::size_t count = 1;
  bool empty = false;
  for (const std::int64_t length : shape) {
    if (length < 0) return std::nullopt;
    if (length == 0) empty = true;
  }
  if (empty) return 0;
  for (const std::int64_t length : shape) {
    if (static_cast<std::uint64_t>(length) > most / count) return std::nullopt;
    count *= static_cast<std::size_t>(length);
  }
  return count;
}

bool fits(const Array& array, const Dtype& dtype) {
  const auto count = count_of(array.shape, array.data.size());
  return count && array.shape.size() <= kMostAxes && *count * dtype.size == array.data.size();
}

/// The elements at one index of the axes before `axis`; `at` is the first one and is advanced past the last.
Value values_of(const Array& array, const Dtype& dtype, std::size_t axis, const std::uint8_t*& at) {
  if (axis == array.shape.size()) return dtype.read(std::exchange(at, at + dtype.size));
  Value list = Value::array();
  for (std::int64_t i = 0; i < array.shape[axis]; ++i) list.push_back(values_of(array, dtype, axis + 1, at));
  return list;
}

}  // namespace

std::optional<Array> array_in(const Value& value) {
  if (!value.is_binary() || !value.get_binary().has_subtype() || value.get_binary().subtype() != kArraySubtype)
    return std::nullopt;
  std::span<const std::uint8_t> rest = value.get_binary();
  const auto take = [&](std::size_t size) {
    const auto taken = rest.first(std::min(size, rest.size()));
    rest = rest.subspan(taken.size());
    return taken;
  };
  const auto take_byte = [&]() -> std::size_t { return rest.empty() ? 0 : take(1)[0]; };
  Array array;
  const auto name = take(take_byte());
  array.dtype.assign(name.begin(), name.end());
  for (std::size_t left = take_byte(); left > 0; --left) {
    const auto length = take(sizeof(std::int64_t));
    if (length.size() < sizeof(std::int64_t)) return std::nullopt;
    std::memcpy(&array.shape.emplace_back(), length.data(), length.size());
  }
  array.data = rest;
  const Dtype* dtype = find_dtype(array.dtype);
  if (dtype == nullptr || !fits(array, *dtype)) return std::nullopt;
  return array;
}

Value summary(const Array& array) {
  Value out{{"shape", array.shape}, {"dtype", array.dtype}};
  const Dtype* dtype = find_dtype(array.dtype);
  if (dtype == nullptr || array.data.size() > kMostValuesInFiles * dtype->size) return out;
  const std::uint8_t* at = array.data.data();
  // A shape such as (0, 10**9) or (10**9, 0) has no values, but looping over it would take forever.
  out["values"] = array.data.empty() ? Value::array() : values_of(array, *dtype, 0, at);
  return out;
}

bool is_summary(const Value& value) {
  const auto has = [&](const char* key, Value::value_t type) {
    const auto found = value.find(key);
    return found != value.end() && found->type() == type;
  };
  return value.is_object() && has("shape", Value::value_t::array) && has("dtype", Value::value_t::string) &&
         value.size() == (has("values", Value::value_t::array) ? 3U : 2U);
}

Value with_summaries(Value value) {
  if (value.is_structured())
    for (auto& item : value) item = with_summaries(std::move(item));
  else if (const auto array = array_in(value))
    return summary(*array);
  return value;
}

void to_json(Value& value, const Array& array) {
  const Dtype* dtype = find_dtype(array.dtype);
  if (dtype == nullptr)
    throw ConfigError("[array] dtype is " + in_quotes(array.dtype) +
                      "; it may be bool, int8 to int64, uint8 to uint64, float16, float32 or float64");
  if (!fits(array, *dtype))
    throw ConfigError("[array] there are " + std::to_string(array.data.size()) + " bytes, which are not the " +
                      array.dtype + " elements of the shape " + Value(array.shape).dump());
  if (array.data.size() == dtype->size) {
    value = dtype->read(array.data.data());
    return;
  }
  Bytes bytes;
  bytes.reserve(2 + array.dtype.size() + sizeof(std::int64_t) * array.shape.size() + array.data.size());
  bytes.push_back(static_cast<std::uint8_t>(array.dtype.size()));
  bytes.insert(bytes.end(), array.dtype.begin(), array.dtype.end());
  bytes.push_back(static_cast<std::uint8_t>(array.shape.size()));
  const auto shape = memory_of(array.shape);
  bytes.insert(bytes.end(), shape.begin(), shape.end());
  bytes.insert(bytes.end(), array.data.begin(), array.data.end());
  value = Value::binary(std::move(bytes), kArraySubtype);
}

}  // namespace lockstep
