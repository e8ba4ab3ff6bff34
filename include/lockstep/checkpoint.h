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
  std::string dtype;  ///< safetensors' name: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64 F8_E4M3 ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< borrowed
};

class Checkpoint;

namespace detail {
struct SharedFile;
Checkpoint checkpoint_in(const std::filesystem::path& memory, const std::vector<SharedFile>& files,
                         const std::string& manifest, bool is_fixed);
}  // namespace detail

/// What a training function saved: a directory, or the same files in memory (before it is reported, or with num_to_keep
/// = 0).
///
/// A checkpoint of plain values and arrays consists of the files data.json, tensors.safetensors and, from Python only,
/// objects.pkl; C++ and Python read each other's. A Checkpoint is an immutable handle: copies are cheap and share the
/// contents; any thread may use it. Reading a damaged or missing file throws StorageError. If there is a manifest, the
/// hash of every file is checked the first time it is read.
class Checkpoint {
 public:
  /// An existing directory; its files stay where they are.
  static Checkpoint from_directory(const std::filesystem::path& path);
  /// Plain values, and arrays (copied). A value {"$tensor": NAME} in `data` refers to the array of that name.
  static Checkpoint from_dict(const Value& data, const std::vector<Tensor>& tensors = {});
  /// The inverse of to_bytes().
  static Checkpoint from_bytes(std::span<const std::uint8_t> bytes);
  /// File names and contents in memory.
  static Checkpoint from_files(std::vector<std::pair<std::string, Bytes>> files);

  /// Its directory; nothing while it is in memory only.
  std::optional<std::filesystem::path> path() const;
  /// The plain values, with arrays as {"$tensor": NAME}. Throws StorageError if it is not a dict checkpoint.
  Value to_dict() const;
  /// The arrays. Their bytes stay valid as long as some copy of this Checkpoint exists.
  std::vector<Tensor> tensors() const;
  /// All files in one byte string, including manifest.json if there is one.
  Bytes to_bytes() const;
  /// Copies the files, without manifest.json, to `path`; a failure leaves no partial directory under that name. If the
  /// directory exists, files of the same names are replaced; a directory that holds a committed checkpoint is refused.
  void to_directory(const std::filesystem::path& path) const;
  /// One file's contents. Throws StorageError if there is no such file.
  Bytes read(const std::string& file) const;
  /// The names of its files, sorted, without manifest.json.
  std::vector<std::string> files() const;
  /// The contents of manifest.json, if there is one: seq, attempt, metrics, world_size, created, ...
  std::optional<Value> metadata() const;
  /// Throws StorageError that names the files that differ from the manifest; also if a directory has no manifest.
  void verify() const;

 private:
  friend Checkpoint detail::checkpoint_in(const std::filesystem::path& memory,
                                          const std::vector<detail::SharedFile>& files, const std::string& manifest,
                                          bool is_fixed);
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;
};

}  // namespace lockstep
