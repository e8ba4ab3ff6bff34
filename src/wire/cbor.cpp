#include "wire/cbor.h"

#include <lockstep/array.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/half.h"
#include "wire/codec.h"

namespace lockstep::wire {
namespace {

enum : unsigned { kNatural = 0, kNegative = 1, kBytes = 2, kText = 3, kArray = 4, kMap = 5, kTag = 6, kSimple = 7 };

}  // namespace

// ---------------------------------------------------------------- writer

void CborWriter::head(unsigned major, std::uint64_t argument) {
  std::array<std::uint8_t, 9> bytes;
  const int size = argument < 24 ? 0 : argument <= 0xff ? 1 : argument <= 0xffff ? 2 : argument <= 0xffffffff ? 4 : 8;
  const unsigned info = size == 0 ? static_cast<unsigned>(argument)
                                  : 24u + static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(size)));
  bytes[0] = static_cast<std::uint8_t>(major << 5 | info);
  for (int i = 0; i < size; ++i)
    bytes[static_cast<std::size_t>(size - i)] = static_cast<std::uint8_t>(argument >> (8 * i));
  out_.insert(out_.end(), bytes.data(), bytes.data() + 1 + size);
}

void CborWriter::integer(std::int64_t number) {
  if (number >= 0)
    head(kNatural, static_cast<std::uint64_t>(number));
  else
    head(kNegative, ~static_cast<std::uint64_t>(number));
}

void CborWriter::number(double number) {
  const auto bits = std::bit_cast<std::uint64_t>(number);
  std::array<std::uint8_t, 9> bytes{0xfb};
  for (unsigned i = 0; i < 8; ++i) bytes[8 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void CborWriter::text(std::string_view text) {
  head(kText, text.size());
  out_.insert(out_.end(), text.begin(), text.end());
}

void CborWriter::bytes(std::span<const std::uint8_t> bytes) {
  head(kBytes, bytes.size());
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void CborWriter::value(const Value& value, int depth) {
  if (value.is_structured() && depth >= kMaxDepth)
    throw WireError("[wire] a value is nested more than " + std::to_string(kMaxDepth) +
                    " levels deep; make it flatter");
  switch (value.type()) {
    case Value::value_t::object: {
      const auto& object = value.get_ref<const Value::object_t&>();
      map(object.size());
      for (const auto& [key, item] : object) {
        text(key);
        this->value(item, depth + 1);
      }
      return;
    }
    case Value::value_t::array: {
      const auto& items = value.get_ref<const Value::array_t&>();
      array(items.size());
      for (const auto& item : items) this->value(item, depth + 1);
      return;
    }
    case Value::value_t::string:
      text(value.get_ref<const std::string&>());
      return;
    case Value::value_t::boolean:
      boolean(value.get<bool>());
      return;
    case Value::value_t::number_integer:
      integer(value.get<std::int64_t>());
      return;
    case Value::value_t::number_unsigned:
      natural(value.get<std::uint64_t>());
      return;
    case Value::value_t::number_float:
      number(value.get<double>());
      return;
    case Value::value_t::binary:
      if (value.get_binary().has_subtype() && value.get_binary().subtype() == kArraySubtype) head(kTag, kArraySubtype);
      bytes(value.get_binary());
      return;
    case Value::value_t::null:
    case Value::value_t::discarded:
      null();
      return;
  }
}

// ---------------------------------------------------------------- reader

void CborReader::fail(const char* what) const {
  throw WireError("[wire] " + std::string(what) + " at byte " + std::to_string(position_) + " of a message of " +
                  std::to_string(bytes_.size()));
}

std::span<const std::uint8_t> CborReader::take(std::uint64_t size) {
  if (size > bytes_.size() - position_) fail("the message is cut short");
  return bytes_.subspan(std::exchange(position_, position_ + static_cast<std::size_t>(size)),
                        static_cast<std::size_t>(size));
}

CborReader::Head CborReader::head() {
  const std::uint8_t first = take(1)[0];
  Head head{static_cast<unsigned>(first) >> 5, first & 0x1fu, first & 0x1fu};
  if (head.info >= 24) {
    if (head.info > 27) fail("an item of indefinite or reserved length");
    head.argument = 0;
    for (const std::uint8_t byte : take(std::uint64_t{1} << (head.info - 24)))
      head.argument = head.argument << 8 | byte;
  }
  return head;
}

CborReader::Head CborReader::head_of(unsigned major, const char* what) {
  const Head found = head();
  if (found.major != major) fail(what);
  return found;
}

std::int64_t CborReader::integer_of(const Head& head) const {
  if (head.argument > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    fail("an integer out of range");
  const auto number = static_cast<std::int64_t>(head.argument);
  return head.major == kNegative ? ~number : number;
}

double CborReader::float_of(const Head& head) const {
  switch (head.info) {
    case 25:
      return from_half(static_cast<std::uint16_t>(head.argument));
    case 26:
      return std::bit_cast<float>(static_cast<std::uint32_t>(head.argument));
    case 27:
      return std::bit_cast<double>(head.argument);
    default:
      fail("no number");
  }
}

std::size_t CborReader::items_of(const Head& head) const {
  // Every item takes at least one byte, so a count beyond the rest of the input is invalid.
  const std::size_t rest = bytes_.size() - position_;
  if (head.argument > (head.major == kMap ? rest / 2 : rest))
    fail("a list or dict that claims more items than there are bytes");
  return static_cast<std::size_t>(head.argument);
}

std::int64_t CborReader::integer() {
  const Head found = head();
  if (found.major != kNatural && found.major != kNegative) fail("no integer");
  return integer_of(found);
}

double CborReader::number() {
  const Head found = head();
  if (found.major == kNatural) return static_cast<double>(found.argument);
  if (found.major == kNegative) return -1.0 - static_cast<double>(found.argument);
  if (found.major != kSimple) fail("no number");
  return float_of(found);
}

bool CborReader::boolean() {
  const std::uint8_t byte = take(1)[0];
  if (byte != 0xf4 && byte != 0xf5) fail("no boolean");
  return byte == 0xf5;
}

bool CborReader::null() {
  if (at_end() || bytes_[position_] != 0xf6) return false;
  ++position_;
  return true;
}

std::string_view CborReader::text() {
  const auto bytes = take(head_of(kText, "no text").argument);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint8_t> CborReader::bytes() { return take(head_of(kBytes, "no bytes").argument); }

std::size_t CborReader::array() { return items_of(head_of(kArray, "no list")); }

std::size_t CborReader::map() { return items_of(head_of(kMap, "no dict")); }

Value CborReader::value(int depth) {
  // A length alone reserves at most this much memory before the items are read.
  constexpr std::size_t kReserved = 64;
  const Head found = head();
  if ((found.major == kArray || found.major == kMap) && depth >= kMaxDepth) fail("a value nested too deeply");
  switch (found.major) {
    case kNatural:
      if (found.argument > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return found.argument;
      return integer_of(found);
    case kNegative:
      return integer_of(found);
    case kBytes: {
      const auto bytes = take(found.argument);
      return Value::binary(Bytes(bytes.begin(), bytes.end()));
    }
    case kText: {
      const auto bytes = take(found.argument);
      return std::string(bytes.begin(), bytes.end());
    }
    case kArray: {
      const std::size_t size = items_of(found);
      Value::array_t items;
      items.reserve(std::min(size, kReserved));
      for (std::size_t i = 0; i < size; ++i) items.push_back(value(depth + 1));
      return Value(std::move(items));
    }
    case kMap: {
      const std::size_t size = items_of(found);
      Value::object_t object;
      object.reserve(std::min(size, kReserved));
      for (std::size_t i = 0; i < size; ++i) {
        std::string key(text());
        // Insert directly into the underlying vector: ordered_map's own insertion searches all keys each time.
        object.emplace_back(std::move(key), value(depth + 1));
      }
      return Value(std::move(object));
    }
    case kSimple:
      if (found.info == 20 || found.info == 21) return found.info == 21;
      if (found.info == 22 || found.info == 23) return nullptr;
      return float_of(found);
    default: {
      if (found.argument != kArraySubtype) fail("a tagged item");
      const auto bytes = this->bytes();
      Value array = Value::binary(Bytes(bytes.begin(), bytes.end()), kArraySubtype);
      if (!array_in(array)) fail("an array that is not what it says");
      return array;
    }
  }
}

void CborReader::skip() {
  std::array<std::uint64_t, kMaxDepth> left;
  std::size_t depth = 0;
  do {
    const Head found = head();
    std::uint64_t items = 0;
    if (found.major == kBytes || found.major == kText)
      take(found.argument);
    else if (found.major == kArray || found.major == kMap)
      items = std::uint64_t{items_of(found)} * (found.major == kMap ? 2 : 1);
    else if (found.major == kTag)
      items = 1;
    if (found.major == kTag && found.argument != kArraySubtype) fail("a tagged item");
    if (items > 0) {
      if (depth == left.size()) fail("a value nested too deeply");
      left[depth++] = items;
      continue;
    }
    while (depth > 0 && --left[depth - 1] == 0) --depth;
  } while (depth > 0);
}

}  // namespace lockstep::wire
