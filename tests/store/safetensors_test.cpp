#include "store/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cstring>
#include <limits>
#include <random>

#include "scratch.h"

namespace lockstep::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(const std::vector<Tensor>& tensors) {
  const SafetensorsWriter writer(tensors);
  std::string file;
  writer.write([&](std::span<const std::byte> piece) {
    file.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  EXPECT_EQ(file.size(), writer.size());
  return file;
}

std::string file_with_header(std::string_view header, std::string_view data = "") {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file.append(header).append(data);
}

std::vector<Tensor> parse(std::string_view file) { return parse_safetensors(bytes_of(file), "t.safetensors"); }

std::string_view text(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

TEST(Safetensors, RoundTrip) {
  const std::vector<Tensor> tensors = {{"a.weight", "F32", {2, 3}, bytes_of("012345678901234567890123")},
                                       {"scalar", "I64", {}, bytes_of("abcdefgh")},
                                       {"empty", "F16", {0, 7}, {}},
                                       {"na\"me \n ü", "U8", {3}, bytes_of("xyz")}};
  const std::string file = file_of(tensors);
  const auto read = parse(file);
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& tensor : tensors) {
    const auto found = std::find_if(read.begin(), read.end(), [&](const auto& t) { return t.name == tensor.name; });
    ASSERT_NE(found, read.end()) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(text(*found), text(tensor));
  }
}

TEST(Safetensors, EveryArrayIsAlignedToItsElements) {
  const std::string bytes(64, 'x');
  const auto some = [&](std::size_t count) { return bytes_of(std::string_view(bytes).substr(0, count)); };
  const std::string file = file_of({{"b", "BOOL", {3}, some(3)},
                                    {"h", "BF16", {1}, some(2)},
                                    {"d", "F64", {1}, some(8)},
                                    {"f", "F32", {1}, some(4)},
                                    {"c", "U8", {1}, some(1)},
                                    {"l", "U64", {2}, some(16)}});
  std::vector<std::string> order;
  for (const auto& tensor : parse(file)) {
    order.push_back(tensor.name);
    const auto offset = static_cast<std::size_t>(reinterpret_cast<const char*>(tensor.bytes.data()) - file.data());
    const std::size_t width = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
    EXPECT_EQ(offset % width, 0u) << tensor.name;
  }
  EXPECT_THAT(order, ElementsAre("d", "l", "f", "h", "b", "c"));
}

TEST(Safetensors, NoArraysIsAFileToo) { EXPECT_TRUE(parse(file_of({})).empty()); }

/// Written by the Python package safetensors 0.8.0: save({"b": float32 [[1,2],[3,4]], "a": int64 7, "flag": bool
/// [1,0,1], "none": float16 of shape (0, 3)}, metadata={"format": "pt"}).
TEST(Safetensors, ReadsWhatPythonWrote) {
  const std::string_view header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"none":{"dtype":"F16","shape":[0,3],"data_offsets":[24,24]},)"
      R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[24,27]}}     )";
  const std::string_view data("\x07\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\1\0\1", 27);
  ASSERT_EQ(header.size(), 264u);
  const std::string file = file_with_header(header, data);
  const auto read = parse(file);
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_TRUE(read[0].shape.empty());
  float numbers[4];
  ASSERT_EQ(read[1].bytes.size(), sizeof numbers);
  std::memcpy(numbers, read[1].bytes.data(), sizeof numbers);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(text(read[3]), std::string_view("\1\0\1", 3));
}

TEST(Safetensors, WriterRefusesWhatDoesNotFit) {
  EXPECT_THAT(message_of<ConfigError>([] { file_of({{"w", "F33", {1}, bytes_of("1234")}}); }), HasSubstr("F33"));
  EXPECT_THAT(message_of<ConfigError>([] { file_of({{"w", "F32", {2}, bytes_of("1234")}}); }), HasSubstr("4 bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { file_of({{"w", "F32", {-1}, bytes_of("1234")}}); }), HasSubstr("\"w\""));
  EXPECT_THAT(message_of<ConfigError>([] {
                file_of({{"w", "U8", {0}, {}}, {"w", "U8", {0}, {}}});
              }),
              HasSubstr("twice"));
  EXPECT_THAT(message_of<ConfigError>([] { file_of({{"__metadata__", "U8", {0}, {}}}); }), HasSubstr("reserves"));
}

TEST(Safetensors, ReaderRefusesBrokenFiles) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return "{\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
           ",\"data_offsets\":" + std::string(offsets) + "}";
  };
  const std::string good = entry("\"U8\"", "[2]", "[0,2]");
  ASSERT_EQ(parse(file_with_header("{\"a\":" + good + "}", "xy")).size(), 1u);
  const std::pair<std::string, const char*> bad[] = {
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {std::string(8, '\xff'), "claims"},
      {file_with_header("{}").substr(0, 9), "claims"},
      {file_with_header(""), "JSON"},
      {file_with_header("[]"), "JSON"},
      {file_with_header("{"), "JSON"},
      {file_with_header(std::string(100'000, '[')), "nested"},
      {file_with_header("{\"a\":1}"), "object"},
      {file_with_header("{\"a\":{}}"), "no type"},
      {file_with_header("{\"a\":" + good + "}", "x"), "outside"},
      {file_with_header("{\"a\":" + good + "}", "xyz"), "belong to no array"},
      {file_with_header("{\"a\":" + good + ",\"b\":" + good + "}", "xy"), "overlaps"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[1]", "[1,2]") + "}", "xy"), "gap"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[2]", "[2,0]") + "}", "xy"), "do not fit"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[3]", "[0,2]") + "}", "xy"), "do not fit"},
      {file_with_header("{\"a\":" + entry("\"X\"", "[2]", "[0,2]") + "}", "xy"), "unknown type"},
      {file_with_header("{\"a\":" + entry("3", "[2]", "[0,2]") + "}", "xy"), "no type"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "2", "[0,2]") + "}", "xy"), "no shape"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[-2]", "[0,2]") + "}", "xy"), "shape"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[2.0]", "[0,2]") + "}", "xy"), "shape"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[2]", "[0]") + "}", "xy"), "data_offsets"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[2]", "[0,-2]") + "}", "xy"), "data_offsets"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[4294967296,4294967296]", "[0,0]") + "}"), "too large"},
      {file_with_header("{\"a\":" + entry("\"F64\"", "[2305843009213693952]", "[0,0]") + "}"), "too large"},
      {file_with_header("{\"a\":" + entry("\"U8\"", "[18446744073709551615]", "[0,18446744073709551615]") + "}"),
       "shape"},
  };
  for (const auto& [file, what] : bad)
    EXPECT_THAT(message_of<StorageError>([&, &f = file] { parse(f); }),
                testing::AllOf(HasSubstr(what), HasSubstr("t.safetensors")))
        << file.substr(0, 100);
}

TEST(Safetensors, MutationsNeverCrashNorPointOutside) {
  std::mt19937 random(11);
  const std::string good = file_of({{"a", "F32", {2}, bytes_of("12345678")},
                                    {"b", "U8", {2, 2}, bytes_of("abcd")},
                                    {"c", "I64", {}, bytes_of("abcdefgh")}});
  int accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string file = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      const std::size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 8);
          break;
        case 2:
          file.insert(at, 1, "0123456789[]{},:\""[random() % 17]);
          break;
        default:
          file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
          break;
      }
      if (file.empty()) file = good;
    }
    // A copy of exactly this size, so that the sanitizer sees a read beyond the end.
    const std::vector<char> exact(file.begin(), file.end());
    try {
      unsigned sum = 0;
      for (const auto& tensor : parse({exact.data(), exact.size()}))
        for (const auto byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      accepted += sum > 0;
    } catch (const StorageError&) {
    }
  }
  EXPECT_GT(accepted, 0) << "some mutations only change data";
}

TEST(Safetensors, ManyArraysTakeNoQuadraticTime) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 50'000; ++i) tensors.push_back({"layer." + std::to_string(i), "U8", {1}, bytes_of("x")});
  EXPECT_EQ(parse(file_of(tensors)).size(), tensors.size());
}

}  // namespace
}  // namespace lockstep::store
