#include "store/positions.h"

#include <lockstep/error.h>

#include "base/json.h"

namespace lockstep::store {
namespace {

constexpr int kPositionsVersion = 1;

}  // namespace

Bytes encode_positions(const Value& datasets) {
  const std::string text = to_json(Value{{"version", kPositionsVersion}, {"datasets", datasets}}) + "\n";
  return {text.begin(), text.end()};
}

Value decode_positions(std::span<const std::uint8_t> contents) {
  const Value value = parse_json({reinterpret_cast<const char*>(contents.data()), contents.size()}, kPositionsName);
  const bool is_ours = value.is_object() && value.value("version", Value()) == kPositionsVersion &&
                       value.value("datasets", Value()).is_object();
  if (!is_ours)
    throw StorageError(std::string("[checkpoint] ") + kPositionsName +
                       " is no file of this version of Lockstep's; files of this name hold positions of data sets");
  return value.at("datasets");
}

}  // namespace lockstep::store
