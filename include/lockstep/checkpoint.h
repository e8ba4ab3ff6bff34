#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <lockstep/value.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// An array in a dict checkpoint: C order, little endian, named as in tensors.safetensors.
struct Tensor {
  std::string name;
  std::string dtype;  ///< safetensors' word: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64 F8_E4M3 ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< borrowed
};

/// What a training function saved: a directory, or (before it is reported, or with num_to_keep = 0) the same files in
/// memory.
///
/// A checkpoint made from plain values and arrays is the files data.json, tensors.safetensors and, from Python only,
/// objects.pkl; C++ and Python read each other's. A Checkpoint is an immutable handle: copies are cheap and share the
/// contents; any thread may use it. Reading from a broken or missing place throws StorageError; where there is a
/// manifest, the hash of every file that is read is checked, once.
class Checkpoint {
 public:
  /// A directory that exists; its files stay where they are.
  static Checkpoint from_directory(const std::filesystem::path& path);
  /// Plain values and, by name, arrays (copied). A value {"$tensor": NAME} stands for an array inside `data`.
  static Checkpoint from_dict(const Value& data, const std::vector<Tensor>& tensors = {});
  /// The inverse of to_bytes().
  static Checkpoint from_bytes(std::span<const std::uint8_t> bytes);
  /// File names and contents, as a worker or the driver holds them in memory.
  static Checkpoint from_files(std::vector<std::pair<std::string, Bytes>> files);

  /// Where it lies; nothing while it is in memory only.
  std::optional<std::filesystem::path> path() const;
  /// The plain values, arrays as {"$tensor": NAME}; throws StorageError when it is not a dict checkpoint.
  Value to_dict() const;
  /// The arrays. Their bytes live as long as some copy of this Checkpoint does.
  std::vector<Tensor> tensors() const;
  /// All files in one string of bytes, manifest.json too where there is one.
  Bytes to_bytes() const;
  /// Copies the files, without manifest.json, to `path`; nothing is left half-written under that name. In a directory
  /// that is there already, files of the same names are replaced; one that holds a committed checkpoint is refused.
  void to_directory(const std::filesystem::path& path) const;
  /// One file's contents; throws StorageError when there is none of that name.
  Bytes read(const std::string& file) const;
  /// The names of its files, sorted; manifest.json is not among them.
  std::vector<std::string> files() const;
  /// manifest.json's contents where there is one: seq, attempt, metrics, world_size, created, ...
  std::optional<Value> metadata() const;
  /// Throws StorageError naming the files that differ from the manifest; also for a directory that has none.
  void verify() const;

 private:
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;
};

}  // namespace lockstep
