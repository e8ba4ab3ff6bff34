#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpoint.h>
#include <lockstep/error.h>

#include <cmath>
#include <thread>

#include "scratch.h"
#include "store/part_writer.h"
#include "store/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Bytes to_vector(std::string_view text) { return {text.begin(), text.end()}; }
std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
std::string text(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

Checkpoint sample() {
  return Checkpoint::from_dict({{"epoch", 3}, {"w", {{"$tensor", "w"}}}}, {{"w", "F32", {2}, bytes_of("12345678")}});
}

class CheckpointTest : public testing::Test {
 protected:
  Scratch scratch_;
  store::RunDirectory run_{scratch_ / "run"};

  Checkpoint committed(int seq = 0) {
    if (!fs::exists(run_.path())) run_.create();
    const auto partial = store::RunDirectory::partial_name(seq);
    const std::vector<Tensor> tensors = {{"w", "F32", {2}, bytes_of("12345678")}};
    store::Manifest manifest;
    manifest.seq = seq;
    manifest.metrics = {{"loss", 0.5}};
    manifest.files =
        store::PartWriter(sys::files(), run_.path() / partial).write_dict({R"({"epoch": 3})", tensors, {}});
    return Checkpoint::from_directory(run_.commit(partial, manifest));
  }
};

TEST_F(CheckpointTest, DictInMemory) {
  const Checkpoint checkpoint = sample();
  EXPECT_FALSE(checkpoint.path().has_value());
  EXPECT_FALSE(checkpoint.metadata().has_value());
  EXPECT_EQ(checkpoint.to_dict(), (Value{{"epoch", 3}, {"w", {{"$tensor", "w"}}}}));
  EXPECT_THAT(checkpoint.files(), ElementsAre("data.json", "tensors.safetensors"));
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  EXPECT_EQ(text(checkpoint.tensors()[0]), "12345678");
  checkpoint.verify();
}

TEST_F(CheckpointTest, FromDictCopiesTheArraysAndChecksThem) {
  std::string data = "12345678";
  const auto checkpoint = Checkpoint::from_dict(Value::object(), {{"w", "U8", {8}, bytes_of(data)}});
  data = "xxxxxxxx";
  EXPECT_EQ(text(checkpoint.tensors()[0]), "12345678");
  EXPECT_THROW(Checkpoint::from_dict(Value::object(), {{"w", "U8", {9}, bytes_of(data)}}), ConfigError);
  EXPECT_THROW(Checkpoint::from_dict({{"w", {{"$tensor", "v"}}}}), ConfigError);
  EXPECT_THROW(Checkpoint::from_dict(3), ConfigError);
}

TEST_F(CheckpointTest, ReservedKeysAndOddFloatsRoundTripAsStrictJson) {
  const auto checkpoint = Checkpoint::from_dict({{"$x", 1}, {"y", std::nan("")}, {"z", {{"$tuple", {1}}}}});
  const Value read = checkpoint.to_dict();
  EXPECT_EQ(read["$x"], 1);
  EXPECT_TRUE(std::isnan(read["y"].get<double>()));
  EXPECT_EQ(read["z"], (Value{{"$tuple", {1}}}));
  EXPECT_TRUE(nlohmann::json::accept(text(checkpoint.read("data.json"))));
}

TEST_F(CheckpointTest, BytesRoundTrip) {
  const auto again = Checkpoint::from_bytes(sample().to_bytes());
  EXPECT_EQ(again.to_dict(), sample().to_dict());
  EXPECT_EQ(again.to_bytes(), sample().to_bytes());
  EXPECT_THROW(Checkpoint::from_bytes(to_vector("nonsense")), StorageError);
}

TEST_F(CheckpointTest, BytesOfACommittedOneKeepItsMetadata) {
  const auto again = Checkpoint::from_bytes(committed(4).to_bytes());
  EXPECT_FALSE(again.path().has_value());
  EXPECT_EQ(again.metadata()->at("seq"), 4);
  EXPECT_THAT(again.files(), ElementsAre("data.json", "tensors.safetensors"));
  again.verify();
  Bytes bytes = committed(5).to_bytes();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  bytes[all.find("12345678")] = 'x';
  const auto damaged = Checkpoint::from_bytes(bytes);
  EXPECT_THROW(damaged.verify(), StorageError);
  EXPECT_THROW(damaged.tensors(), StorageError);
  EXPECT_EQ(damaged.to_dict(), (Value{{"epoch", 3}})) << "the file that is whole can be read";
}

TEST_F(CheckpointTest, FilesInMemory) {
  const auto checkpoint = Checkpoint::from_files({{"b", to_vector("2")}, {"a/x", to_vector("1")}});
  EXPECT_THAT(checkpoint.files(), ElementsAre("a/x", "b"));
  EXPECT_EQ(text(checkpoint.read("a/x")), "1");
  EXPECT_TRUE(checkpoint.tensors().empty());
  EXPECT_THAT(message_of<StorageError>([&] { checkpoint.to_dict(); }), HasSubstr("a/x, b"));
  EXPECT_THAT(message_of<StorageError>([&] { checkpoint.read("c"); }), HasSubstr("\"c\""));
  EXPECT_THROW(Checkpoint::from_files({{"../a", {}}}), ConfigError);
  EXPECT_THROW(Checkpoint::from_files({{"a", {}}, {"a", {}}}), ConfigError);
}

TEST_F(CheckpointTest, AUsersDirectory) {
  spit(scratch_ / "mine/model.pt", "weights");
  spit(scratch_ / "mine/sub/x", "x");
  const auto checkpoint = Checkpoint::from_directory(scratch_ / "mine");
  EXPECT_EQ(checkpoint.path(), scratch_ / "mine");
  EXPECT_THAT(checkpoint.files(), ElementsAre("model.pt", "sub/x"));
  EXPECT_EQ(text(checkpoint.read("sub/x")), "x");
  EXPECT_FALSE(checkpoint.metadata().has_value());
  EXPECT_THAT(message_of<StorageError>([&] { checkpoint.verify(); }), HasSubstr("never committed"));
  for (const char* name : {"../mine/model.pt", "none", "sub", "", "/etc/passwd", "manifest.json"})
    EXPECT_THROW(checkpoint.read(name), StorageError) << name;
  EXPECT_THROW(Checkpoint::from_directory(scratch_ / "none"), StorageError);
  EXPECT_THROW(Checkpoint::from_directory(scratch_ / "mine/model.pt"), StorageError);
}

TEST_F(CheckpointTest, LinksLeadNowhereOutside) {
  spit(scratch_ / "secret", "x");
  fs::create_directory(scratch_ / "mine");
  fs::create_symlink("../secret", scratch_ / "mine/data.json");
  const auto checkpoint = Checkpoint::from_directory(scratch_ / "mine");
  EXPECT_THROW(checkpoint.read("data.json"), StorageError);
  EXPECT_THROW(checkpoint.to_dict(), StorageError);
  EXPECT_THROW(checkpoint.to_bytes(), StorageError);
}

TEST_F(CheckpointTest, ARelativePathIsResolvedAtOnce) {
  spit(scratch_ / "mine/x", "x");
  const auto before = fs::current_path();
  fs::current_path(scratch_.path());
  const auto checkpoint = Checkpoint::from_directory("mine");
  fs::current_path(before);
  EXPECT_EQ(text(checkpoint.read("x")), "x");
}

TEST_F(CheckpointTest, ACommittedDirectory) {
  const auto checkpoint = committed(7);
  EXPECT_EQ(checkpoint.to_dict(), (Value{{"epoch", 3}}));
  EXPECT_EQ(text(checkpoint.tensors()[0]), "12345678");
  EXPECT_EQ(checkpoint.metadata()->at("seq"), 7);
  EXPECT_EQ(checkpoint.metadata()->at("metrics"), (Value{{"loss", 0.5}}));
  EXPECT_THAT(checkpoint.files(), ElementsAre("data.json", "tensors.safetensors"));
  checkpoint.verify();
}

TEST_F(CheckpointTest, ReadingADamagedFileThrows) {
  const auto path = *committed().path();
  spit(path / "data.json", R"({"epoch": 4})");
  EXPECT_THAT(message_of<StorageError>([&] { Checkpoint::from_directory(path).to_dict(); }),
              testing::AllOf(HasSubstr("data.json"), HasSubstr("hash"), HasSubstr(path.string())));
  EXPECT_EQ(Checkpoint::from_directory(path).tensors().size(), 1u) << "the other file is whole";
  std::string tensors = slurp(path / "tensors.safetensors");
  tensors.back() ^= 1;
  spit(path / "tensors.safetensors", tensors);
  EXPECT_THROW(Checkpoint::from_directory(path).tensors(), StorageError);
  spit(path / "extra", "x");
  EXPECT_THAT(message_of<StorageError>([&] { Checkpoint::from_directory(path).read("extra"); }),
              HasSubstr("not in its manifest"));
  EXPECT_THAT(message_of<StorageError>([&] { Checkpoint::from_directory(path).verify(); }),
              testing::AllOf(HasSubstr("data.json"), HasSubstr("tensors.safetensors"), HasSubstr("extra")));
}

TEST_F(CheckpointTest, AFileIsHashedOnce) {
  const auto checkpoint = committed();
  checkpoint.to_dict();
  spit(*checkpoint.path() / "data.json", R"({"epoch": 4})");
  EXPECT_EQ(checkpoint.to_dict()["epoch"], 4);
  EXPECT_THROW(Checkpoint::from_directory(*checkpoint.path()).to_dict(), StorageError);
}

TEST_F(CheckpointTest, ArraysOutliveTheHandleTheyCameFromAndTheFile) {
  std::optional<Checkpoint> first = committed();
  const Checkpoint copy = *first;
  const auto tensors = first->tensors();
  first.reset();
  run_.remove_checkpoint(0);
  EXPECT_EQ(text(tensors[0]), "12345678");
  EXPECT_EQ(text(copy.tensors()[0]), "12345678");
}

TEST_F(CheckpointTest, AnyThreadMayRead) {
  const auto checkpoint = committed();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, copy = checkpoint] {
      for (int k = 0; k < 20; ++k)
        good += copy.to_dict()["epoch"] == 3 && copy.tensors().size() == 1 && copy.metadata().has_value();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 160);
}

TEST_F(CheckpointTest, ToDirectoryMakesANewOne) {
  const auto files = [&](const char* name) { return Checkpoint::from_directory(scratch_ / name).files(); };
  sample().to_directory(scratch_ / "a/b/new");
  EXPECT_THAT(files("a/b/new"), ElementsAre("data.json", "tensors.safetensors"));
  EXPECT_EQ(Checkpoint::from_directory(scratch_ / "a/b/new").to_dict(), sample().to_dict());
  fs::create_directory(scratch_ / "empty");
  committed().to_directory(scratch_ / "empty/");
  EXPECT_THAT(files("empty"), ElementsAre("data.json", "tensors.safetensors"));
  EXPECT_FALSE(fs::exists(scratch_ / "empty/manifest.json")) << "a copy is the user's to change";
  Checkpoint::from_files({}).to_directory(scratch_ / "nothing");
  EXPECT_TRUE(fs::is_directory(scratch_ / "nothing"));
}

TEST_F(CheckpointTest, ToDirectoryReplacesFilesInOneThatIsThere) {
  spit(scratch_ / "mine/data.json", "old");
  spit(scratch_ / "mine/other", "kept");
  sample().to_directory(scratch_ / "mine");
  EXPECT_THAT(Checkpoint::from_directory(scratch_ / "mine").files(),
              ElementsAre("data.json", "other", "tensors.safetensors"));
  EXPECT_EQ(Checkpoint::from_directory(scratch_ / "mine").to_dict(), sample().to_dict());
  EXPECT_EQ(slurp(scratch_ / "mine/other"), "kept");
  const auto nested = Checkpoint::from_files({{"sub/dir/x", to_vector("x")}});
  nested.to_directory(scratch_ / "mine");
  EXPECT_EQ(slurp(scratch_ / "mine/sub/dir/x"), "x");
}

TEST_F(CheckpointTest, ToDirectoryOfItselfDoesNothing) {
  const auto checkpoint = committed();
  checkpoint.to_directory(*checkpoint.path());
  checkpoint.verify();
}

TEST_F(CheckpointTest, ToDirectoryRefusesAndLeavesNothing) {
  const auto target = committed(0);
  EXPECT_THAT(message_of<StorageError>([&] { sample().to_directory(*target.path()); }), HasSubstr("committed"));
  target.verify();
  spit(scratch_ / "file", "x");
  EXPECT_THROW(sample().to_directory(scratch_ / "file"), StorageError);

  const auto damaged = committed(1);
  spit(*damaged.path() / "data.json", "{}");
  EXPECT_THROW(damaged.to_directory(scratch_ / "copy"), StorageError);
  spit(scratch_ / "mine/data.json", "old");
  EXPECT_THROW(damaged.to_directory(scratch_ / "mine"), StorageError);
  EXPECT_EQ(slurp(scratch_ / "mine/data.json"), "old");
  std::vector<std::string> names;
  for (const auto& item : sys::files().list(scratch_.path())) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("file", "mine", "run"));
  EXPECT_EQ(sys::files().list(scratch_ / "mine").size(), 1u);
}

TEST_F(CheckpointTest, DataThatIsNestedTooDeepIsRefused) {
  for (const char* inner : {"", "NaN"}) {
    const std::string deep = std::string(200'000, '[') + inner;
    const auto checkpoint = Checkpoint::from_files({{"data.json", to_vector(deep)}});
    EXPECT_THROW(checkpoint.to_dict(), StorageError);
  }
}

}  // namespace
}  // namespace lockstep
