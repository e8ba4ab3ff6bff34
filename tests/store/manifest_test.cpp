#include "store/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <cmath>
#include <random>

#include "base/json.h"
#include "scratch.h"

namespace lockstep::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kHash = "0123456789abcdef0123456789abcdef";

Manifest sample() {
  Manifest manifest;
  manifest.seq = 12;
  manifest.attempt = 2;
  manifest.world_size = 4;
  manifest.ranks = {0, 3};
  manifest.created = 1700000000.25;
  manifest.metrics = {{"loss", 0.5}, {"name", "ä"}};
  manifest.files = {{"data.json", 10, kHash}, {"sub/x.bin", 5'000'000'000, kHash}};
  return manifest;
}

TEST(Manifest, RoundTrip) {
  const Manifest manifest = sample();
  const Manifest read = parse_manifest(to_text(manifest), "test");
  EXPECT_EQ(read.files, manifest.files);
  EXPECT_EQ(to_value(read), to_value(manifest));
}

TEST(Manifest, HasTheFieldsOfTheDesignInOrderForPeople) {
  const std::string text = to_text(sample());
  std::string keys;
  const Value value = to_value(sample());
  for (const auto& [key, field] : value.items()) keys += key + " ";
  EXPECT_EQ(keys, "version seq attempt world_size ranks created metrics files ");
  EXPECT_THAT(text, HasSubstr("\n  \"seq\": 12,\n"));
}

TEST(Manifest, MetricsMayBeNan) {
  Manifest manifest = sample();
  manifest.metrics["loss"] = std::nan("");
  EXPECT_TRUE(std::isnan(parse_manifest(to_text(manifest), "test").metrics["loss"].get<double>()));
}

TEST(Manifest, UnknownFieldsAreIgnoredNewerVersionsRefused) {
  Value value = to_value(sample());
  value["colour"] = "green";
  EXPECT_EQ(parse_manifest(to_json(value), "test").seq, 12);
  value["version"] = 2;
  EXPECT_THAT(message_of<StorageError>([&] { parse_manifest(to_json(value), "the file"); }),
              AllOf(HasSubstr("the file"), HasSubstr("version")));
}

TEST(Manifest, EveryFieldIsNeededAndChecked) {
  const Value whole = to_value(sample());
  for (const auto& [key, good] : whole.items()) {
    Value without = whole;
    without.erase(key);
    EXPECT_THAT(message_of<StorageError>([&] { parse_manifest(to_json(without), "f"); }),
                HasSubstr(key + " is missing"));
    if (key == "metrics") continue;
    for (const char* text : {"null", "\"x\"", "-1", "{}", "[[]]", "1e300", "99999999999999999999"}) {
      if (key == "created" && (*text == '-' || *text == '1' || *text == '9')) continue;
      Value wrong = whole;
      wrong[key] = Value::parse(text);
      EXPECT_THROW(parse_manifest(to_json(wrong), "f"), StorageError) << key << " " << text;
    }
  }
  for (const char* text : {"", "[]", "{", "null", "[[[["})
    EXPECT_THROW(parse_manifest(text, "f"), StorageError) << text;
}

TEST(Manifest, FileEntriesAreChecked) {
  const std::pair<FileEntry, const char*> bad[] = {
      {{"../x", 1, kHash}, ".."},           {{"/x", 1, kHash}, "absolute"},
      {{"manifest.json", 1, kHash}, "own"}, {{"x", -1, kHash}, "range"},
      {{"x", 1, "abc"}, "hexadecimal"},     {{"x", 1, ""}, "hexadecimal"},
      {{"data.json", 1, kHash}, "twice"},   {{"x", 1, std::string(32, 'G')}, "hexadecimal"}};
  for (const auto& [entry, what] : bad) {
    Manifest manifest = sample();
    manifest.files.push_back(entry);
    EXPECT_THAT(message_of<StorageError>([&, &m = manifest] { to_text(m); }), HasSubstr(what)) << entry.name;
  }
}

TEST(Manifest, MutationsNeverCrash) {
  std::mt19937 random(3);
  const std::string good = to_text(sample());
  for (int round = 0; round < 5'000; ++round) {
    std::string text = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes)
      text[random() % text.size()] = static_cast<char>(random());
    try {
      (void)parse_manifest(text, "test");
    } catch (const StorageError&) {
    }
  }
}

TEST(MergeParts, JoinsSortedByName) {
  const auto files = merge_parts({{0, {{"b", 1, kHash}}}, {1, {{"a", 2, kHash}, {"c", 3, kHash}}}});
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "a");
  EXPECT_EQ(files[2].size, 3);
}

TEST(MergeParts, OneNameFromTwoRanksNamesBoth) {
  EXPECT_THAT(message_of<ConfigError>([] {
                merge_parts({{0, {{"m.pt", 1, kHash}}}, {3, {{"m.pt", 1, ""}}}});
              }),
              AllOf(HasSubstr("ranks 0 and 3"), HasSubstr("\"m.pt\"")));
  EXPECT_THAT(message_of<StorageError>([] { merge_parts({{3, {{"m.pt", 1, ""}}}}); }), HasSubstr("rank 3"));
}

}  // namespace
}  // namespace lockstep::store
