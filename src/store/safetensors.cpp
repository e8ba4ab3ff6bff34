#include "store/safetensors.h"

#include <lockstep/error.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "store/data_json.h"

namespace lockstep::store {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

// What the format's own library accepts.
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

std::optional<std::uint64_t> element_size(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> kSizes[] = {
      {"F32", 4},     {"F64", 8},     {"F16", 2},     {"BF16", 2},        {"I64", 8},        {"I32", 4},  {"I16", 2},
      {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2},         {"U8", 1},         {"BOOL", 1}, {"C64", 8},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};
  for (const auto& [word, size] : kSizes)
    if (word == dtype) return size;
  return std::nullopt;
}

/// The size of an array in bytes; nothing if the type is unknown, a length is negative, or the size overflows.
std::optional<std::uint64_t> byte_count(std::string_view dtype, const std::vector<std::int64_t>& shape) {
  const auto element = element_size(dtype);
  if (!element) return std::nullopt;
  std::uint64_t count = *element;
  for (const auto length : shape)
    if (length < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(length), &count)) return std::nullopt;
  return count;
}

void check(const Tensor& tensor) {
  if (tensor.name == kMetadata)
    throw ConfigError("[checkpoint] an array is named " + in_quotes(kMetadata) + ", which the file format reserves");
  if (!element_size(tensor.dtype))
    throw ConfigError("[checkpoint] the array " + in_quotes(tensor.name) + " has the unknown type " +
                      in_quotes(tensor.dtype) +
                      "; use one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64 or an F8 type");
  if (byte_count(tensor.dtype, tensor.shape) != tensor.bytes.size())
    throw ConfigError("[checkpoint] the array " + in_quotes(tensor.name) + " of type " + tensor.dtype + " and shape " +
                      to_json(Value(tensor.shape)) + " has " + std::to_string(tensor.bytes.size()) + " bytes");
}

[[noreturn]] void refuse_file(std::string_view where, const std::string& what) {
  throw StorageError("[checkpoint] " + std::string(where) + " is not a valid safetensors file: " + what);
}

struct Placed {
  Tensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

using Header = nlohmann::json;  // not ordered: a file with many names must not take quadratic time

Placed place(const std::string& name, const Header& entry, std::string_view where) {
  const auto bad = [&](const char* what) { refuse_file(where, "the array " + in_quotes(name) + " " + what); };
  if (!entry.is_object()) bad("is not described by an object");
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) bad("has no type");
  if (shape == entry.end() || !shape->is_array()) bad("has no shape");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) bad("has no data_offsets");
  Placed placed{{name, dtype->get<std::string>(), {}, {}}, 0, 0};
  for (const auto& length : *shape) {
    if (!length.is_number_unsigned() || length.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      bad("has a shape that is not of whole numbers");
    placed.tensor.shape.push_back(length.get<std::int64_t>());
  }
  for (const auto& offset : *offsets)
    if (!offset.is_number_unsigned()) bad("has data_offsets that are not whole numbers");
  placed.begin = (*offsets)[0].get<std::uint64_t>();
  placed.end = (*offsets)[1].get<std::uint64_t>();
  const auto count = byte_count(placed.tensor.dtype, placed.tensor.shape);
  if (!count) bad("has an unknown type or too large a shape");
  if (placed.end < placed.begin || placed.end - placed.begin != *count)
    bad("has data_offsets that do not fit its shape");
  return placed;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::span<const Tensor> tensors) {
  std::vector<const Tensor*> order;
  std::set<std::string_view> names;
  for (const auto& tensor : tensors) {
    check(tensor);
    if (!names.insert(tensor.name).second)
      throw ConfigError("[checkpoint] the array name " + in_quotes(tensor.name) + " occurs twice");
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Tensor* a, const Tensor* b) { return *element_size(a->dtype) > *element_size(b->dtype); });
  std::string header = "{";
  std::uint64_t offset = 0;
  for (const Tensor* tensor : order) {
    if (offset > 0 || header.size() > 1) header += ',';
    append_json_string(header, tensor->name);
    header += ":{\"dtype\":\"" + tensor->dtype + "\",\"shape\":" + to_json(Value(tensor->shape)) +
              ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + tensor->bytes.size()) +
              "]}";
    offset += tensor->bytes.size();
    if (!tensor->bytes.empty()) pieces_.push_back(tensor->bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader)
    throw ConfigError("[checkpoint] the arrays' names and shapes take " +
                      human_size(static_cast<double>(header.size())) +
                      ", the file format allows 100 MB; store fewer arrays");
  const std::uint64_t length = header.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  header_ += header;
  size_ = header_.size() + offset;
}

void SafetensorsWriter::write(const std::function<void(std::span<const std::byte>)>& sink) const {
  sink(std::as_bytes(std::span(header_)));
  for (const auto& piece : pieces_) sink(piece);
}

std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) refuse_file(where, "it has only " + std::to_string(file.size()) + " bytes");
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxHeader || length > file.size() - sizeof length)
    refuse_file(where, "its header claims " + std::to_string(length) + " bytes");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  const auto data = file.subspan(sizeof length + length);

  check_json_depth(text, where);
  const Header header = Header::parse(text, nullptr, false);
  if (!header.is_object()) refuse_file(where, "its header is not a JSON object");
  std::vector<Placed> placed;
  for (const auto& [name, entry] : header.items())
    if (name != kMetadata) placed.push_back(place(name, entry, where));
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });

  std::vector<Tensor> tensors;
  std::uint64_t end = 0;
  for (auto& [tensor, from, to] : placed) {
    if (from != end || to > data.size())
      refuse_file(where,
                  "the array " + in_quotes(tensor.name) + " overlaps another, leaves a gap, or lies outside the file");
    tensor.bytes = data.subspan(from, to - from);
    tensors.push_back(std::move(tensor));
    end = to;
  }
  if (end != data.size())
    refuse_file(where, std::to_string(data.size() - end) + " bytes at its end belong to no array");
  return tensors;
}

}  // namespace lockstep::store
