#include "wire/cbor.h"

#include <gtest/gtest.h>
#include <lockstep/array.h>

#include <cmath>

#include "samples.h"

namespace lockstep::wire {
namespace {

Value nested(int levels) {
  Value value = 1;
  for (int i = 0; i < levels; ++i) value = Value::array({value});
  return value;
}

Bytes hex(std::string_view digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

TEST(Cbor, ReadsWhatItWrites) { EXPECT_EQ(decode_value(encode_value(sample_value())), sample_value()); }

TEST(Cbor, KeepsOrderOfKeys) {
  const Value value = decode_value(encode_value(Value{{"z", 1}, {"a", 2}, {"m", 3}}));
  EXPECT_EQ(value.dump(), R"({"z":1,"a":2,"m":3})");
}

// An independent implementation of the same standard agrees, both ways.
TEST(Cbor, AgreesWithNlohmann) {
  const auto keep_tags = Value::cbor_tag_handler_t::store;
  EXPECT_EQ(Value::from_cbor(encode_value(sample_value()), true, true, keep_tags), sample_value());
  EXPECT_EQ(decode_value(Value::to_cbor(sample_value())), sample_value());
}

// Appendix A of RFC 8949.
TEST(Cbor, ReadsTheStandardsExamples) {
  EXPECT_EQ(decode_value(hex("1b000000e8d4a51000")), 1000000000000);
  EXPECT_EQ(decode_value(hex("3903e7")), -1000);
  EXPECT_EQ(decode_value(hex("f93c00")), 1.0);
  EXPECT_EQ(decode_value(hex("f90001")), 5.960464477539063e-8);
  EXPECT_EQ(decode_value(hex("f9c400")), -4.0);
  EXPECT_EQ(decode_value(hex("fa47c35000")), 100000.0);
  EXPECT_EQ(decode_value(hex("fb7e37e43c8800759c")), 1.0e+300);
  EXPECT_EQ(decode_value(hex("f97c00")), INFINITY);
  EXPECT_TRUE(std::isnan(decode_value(hex("f97e00")).get<double>()));
  EXPECT_EQ(decode_value(hex("f7")), nullptr);
  EXPECT_EQ(decode_value(hex("a26161016162820203")).dump(), R"({"a":1,"b":[2,3]})");
}

TEST(Cbor, FloatsSurviveExactly) {
  for (const double number : std::initializer_list<double>{0.1, -0.0, 1e-310, INFINITY, -INFINITY, 3.0}) {
    const Value back = decode_value(encode_value(number));
    ASSERT_TRUE(back.is_number_float()) << number;
    EXPECT_EQ(std::signbit(back.get<double>()), std::signbit(number));
    EXPECT_EQ(back.get<double>(), number);
  }
  EXPECT_TRUE(std::isnan(decode_value(encode_value(NAN)).get<double>()));
}

TEST(Cbor, RefusesWhatItDoesNotKnow) {
  for (const char* bad : {"", "18", "ff", "9f01ff", "c11a514b67b0", "1c", "f800", "3bffffffffffffffff", "0000",
                          "a10102", "5affffffff00", "9bffffffffffffffff", "bb7fffffffffffffff"})
    EXPECT_THROW(decode_value(hex(bad)), WireError) << bad;
}

TEST(Cbor, DepthIsLimitedOnBothSides) {
  EXPECT_EQ(decode_value(encode_value(nested(kMaxDepth))), nested(kMaxDepth));
  EXPECT_THROW(encode_value(nested(kMaxDepth + 1)), WireError);
  EXPECT_THROW(decode_value(Bytes(1'000'000, 0x81)), WireError);
  Bytes fits(kMaxDepth, 0x81), too_deep(kMaxDepth + 1, 0x81);
  fits.push_back(0);
  too_deep.push_back(0);
  CborReader(fits).skip();
  EXPECT_THROW(CborReader(too_deep).skip(), WireError);
}

TEST(Cbor, SkipEndsWhereTheItemEnds) {
  Bytes bytes = encode_value(sample_value());
  const std::size_t size = bytes.size();
  bytes.push_back(5);
  CborReader in(bytes);
  in.skip();
  EXPECT_EQ(in.position(), size);
  EXPECT_EQ(in.integer(), 5);
}

// 1 GB of list is claimed by nine bytes; nothing of the kind is allocated.
TEST(Cbor, ClaimsBuyNoMemory) {
  EXPECT_THROW(decode_value(hex("9a40000000f6f6f6f6")), WireError);
  EXPECT_THROW(decode_value(hex("7a40000000616161")), WireError);
}

TEST(Cbor, ArraysTravelAsTaggedBytes) {
  const std::vector<float> numbers{1, 2, 3};
  const Value value{{"a", Array{"float32", {3}, memory_of(numbers)}}, {"b", 1}};
  EXPECT_EQ(decode_value(encode_value(value)), value);
  const Value back = decode_value(encode_value(value));
  ASSERT_TRUE(array_in(back["a"]));
  // As the library writes bytes of a subtype.
  EXPECT_EQ(encode_value(value["a"]), Bytes(Value::to_cbor(value["a"])));
  Bytes wrong = encode_value(value["a"]);
  wrong[4] = 'g';  // the type's first letter
  EXPECT_THROW(decode_value(wrong), WireError);
  const Bytes skipped = encode_value(value);
  CborReader reader(skipped);
  reader.skip();
  EXPECT_TRUE(reader.at_end());
}

}  // namespace
}  // namespace lockstep::wire
