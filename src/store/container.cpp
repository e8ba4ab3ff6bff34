#include "store/container.h"

#include <lockstep/error.h>

#include "base/text.h"
#include "store/tree.h"

namespace lockstep::store {
namespace {

constexpr std::string_view kMagic = "LSCKPT01";

void append_number(Bytes& out, std::uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<std::uint8_t>(number >> shift));
}

[[noreturn]] void refuse(const std::string& what) {
  throw StorageError("[checkpoint] these bytes are not a checkpoint: " + what);
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  std::span<const std::uint8_t> take(std::uint64_t count) {
    if (count > rest_.size()) refuse("they end " + std::to_string(count - rest_.size()) + " bytes too early");
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  std::string_view text(std::uint64_t count) {
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::uint64_t number() {
    std::uint64_t number = 0;
    const auto bytes = take(8);
    for (std::size_t i = 8; i-- > 0;) number = number << 8 | bytes[i];
    return number;
  }

  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace

Bytes begin_container(std::size_t count) {
  Bytes container(kMagic.begin(), kMagic.end());
  append_number(container, count);
  return container;
}

void append_file(Bytes& container, std::string_view name, std::span<const std::uint8_t> contents) {
  append_number(container, name.size());
  container.insert(container.end(), name.begin(), name.end());
  append_number(container, contents.size());
  container.insert(container.end(), contents.begin(), contents.end());
}

FileMap read_container(std::span<const std::uint8_t> bytes) {
  Reader reader(bytes);
  if (bytes.size() < kMagic.size() || reader.text(kMagic.size()) != kMagic) refuse("they do not begin with LSCKPT01");
  FileMap files;
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    const std::string name(reader.text(reader.number()));
    if (const auto problem = file_name_problem(name); !problem.empty() && name != kManifestName)
      refuse("the file name " + in_quotes(name.substr(0, 100)) + " " + problem);
    const auto contents = reader.take(reader.number());
    if (!files.try_emplace(name, contents.begin(), contents.end()).second)
      refuse("the file name " + in_quotes(name) + " occurs twice");
  }
  if (reader.left() > 0) refuse(std::to_string(reader.left()) + " bytes are left over");
  return files;
}

}  // namespace lockstep::store
