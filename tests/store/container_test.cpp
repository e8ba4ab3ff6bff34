#include "store/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <random>

#include "scratch.h"

namespace lockstep::store {
namespace {

using testing::HasSubstr;

const FileMap kFiles{{"a", {1, 2, 3}}, {"dir/b", {}}, {"manifest.json", {'{', '}'}}};

Bytes packed() {
  Bytes container = begin_container(kFiles.size());
  for (const auto& [name, contents] : kFiles) append_file(container, name, contents);
  return container;
}

Bytes with_names(const std::vector<std::string>& names) {
  Bytes container = begin_container(names.size());
  for (const auto& name : names) append_file(container, name, {});
  return container;
}

TEST(Container, RoundTrip) {
  EXPECT_EQ(read_container(packed()), kFiles);
  EXPECT_EQ(read_container(begin_container(0)), FileMap{});
}

TEST(Container, ItsBytesAreTheDocumentedOnes) {
  Bytes container = begin_container(1);
  append_file(container, "n", Bytes{9, 8});
  const std::string expected("LSCKPT01\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0n\2\0\0\0\0\0\0\0\x09\x08", 35);
  EXPECT_EQ(std::string(container.begin(), container.end()), expected);
}

TEST(Container, EveryPrefixIsRefused) {
  const Bytes whole = packed();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read_container(std::span(whole).first(size)), StorageError) << size;
}

TEST(Container, RefusesWhatIsNoneWithAReason) {
  Bytes more = packed();
  more.push_back(0);
  EXPECT_THAT(message_of<StorageError>([&] { read_container(more); }), HasSubstr("left over"));
  Bytes other = packed();
  other[0] = 'X';
  EXPECT_THAT(message_of<StorageError>([&] { read_container(other); }), HasSubstr("LSCKPT01"));
  for (const char* name : {"../x", "/etc/passwd", "a/../b", "", "x.partial"})
    EXPECT_THAT(message_of<StorageError>([&] { read_container(with_names({name})); }), HasSubstr("name")) << name;
  EXPECT_THAT(message_of<StorageError>([&] { read_container(with_names({"a", "a"})); }), HasSubstr("twice"));
}

TEST(Container, HugeClaimsDoNotReserveMemory) {
  Bytes container = begin_container(std::numeric_limits<std::size_t>::max());
  EXPECT_THROW(read_container(container), StorageError);
  container = begin_container(1);
  container.insert(container.end(), 16, 0xff);
  EXPECT_THROW(read_container(container), StorageError);
}

TEST(Container, MutationsNeverCrash) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = packed();
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    try {
      (void)read_container(bytes);
    } catch (const StorageError&) {
    }
  }
}

}  // namespace
}  // namespace lockstep::store
