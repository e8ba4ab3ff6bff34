#pragma once

#include <lockstep/value.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::wire {

/// Both sides refuse values that are nested deeper than this.
inline constexpr int kMaxDepth = 64;

/// Appends CBOR (RFC 8949) items to a buffer. Lengths are always definite, floats always have 64 bits.
/// Arrays (lockstep/array.h) are bytes with the tag kArraySubtype; there are no other tags.
class CborWriter {
 public:
  explicit CborWriter(Bytes& out) : out_(out) {}
  void integer(std::int64_t number);
  void natural(std::uint64_t number) { head(0, number); }
  void number(double number);
  void boolean(bool value) { out_.push_back(value ? 0xf5 : 0xf4); }
  void null() { out_.push_back(0xf6); }
  void text(std::string_view text);
  void bytes(std::span<const std::uint8_t> bytes);
  /// `items` items follow.
  void array(std::size_t items) { head(4, items); }
  /// `pairs` keys and values follow.
  void map(std::size_t pairs) { head(5, pairs); }
  /// Throws WireError when it is nested deeper than kMaxDepth.
  void value(const Value& value, int depth = 0);

 private:
  void head(unsigned major, std::uint64_t argument);
  Bytes& out_;
};

/// Reads the items that CborWriter writes, and all of RFC 8949 except other tags and indefinite lengths. Views point
/// into the input. Every method throws only WireError: for an item of another type, an integer or length out of range,
/// or the end of the input. Nothing is allocated for a length until the bytes are known to be there.
class CborReader {
 public:
  explicit CborReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::int64_t integer();
  /// Also takes integers.
  double number();
  bool boolean();
  /// Whether the next item is null; if so, it is consumed.
  bool null();
  std::string_view text();
  std::span<const std::uint8_t> bytes();
  std::size_t array();
  std::size_t map();
  /// The next item of any type. If a dict has equal keys, lookups find the first.
  Value value(int depth = 0);
  /// Skips the next item, without recursion.
  void skip();
  std::size_t position() const { return position_; }
  bool at_end() const { return position_ == bytes_.size(); }

 private:
  struct Head {
    unsigned major;
    unsigned info;
    std::uint64_t argument;
  };
  Head head();
  Head head_of(unsigned major, const char* what);
  double float_of(const Head& head) const;
  std::int64_t integer_of(const Head& head) const;
  std::size_t items_of(const Head& head) const;
  std::span<const std::uint8_t> take(std::uint64_t size);
  [[noreturn]] void fail(const char* what) const;

  std::span<const std::uint8_t> bytes_;
  std::size_t position_ = 0;
};

}  // namespace lockstep::wire
