#include "base/json_reader.h"

#include <lockstep/error.h>

#include <algorithm>
#include <unordered_map>

namespace lockstep {
namespace {

bool has_equal_keys(const Value::object_t& dict) {
  std::vector<std::string_view> keys;
  keys.reserve(dict.size());
  for (const auto& entry : dict) keys.emplace_back(entry.first);
  std::ranges::sort(keys);
  return std::ranges::adjacent_find(keys) != keys.end();
}

Value::object_t without_equal_keys(Value::object_t& dict) {
  Value::object_t unique;
  std::unordered_map<std::string, std::size_t> places;
  for (auto& [key, value] : dict) {
    const auto [place, is_new] = places.try_emplace(key, unique.size());
    if (is_new)
      unique.emplace_back(key, std::move(value));
    else
      unique.begin()[static_cast<std::ptrdiff_t>(place->second)].second = std::move(value);
  }
  return unique;
}

}  // namespace

Value JsonReader::read(std::string_view text, std::string_view where) {
  JsonReader reader;
  if (!Value::sax_parse(text.begin(), text.end(), &reader))
    throw StorageError("[json] " + std::string(where) + " is not valid JSON: " + reader.error_);
  return std::move(reader.result_);
}

bool JsonReader::add(Value value) {
  if (open_.empty()) {
    result_ = std::move(value);
  } else if (Open& around = open_.back(); around.value.is_array()) {
    around.value.get_ref<Value::array_t&>().push_back(std::move(value));
  } else {
    around.value.get_ref<Value::object_t&>().emplace_back(std::move(around.key), std::move(value));
  }
  return true;
}

bool JsonReader::start(Value value) {
  open_.push_back({std::move(value), {}});
  return true;
}

bool JsonReader::end() {
  Value value = std::move(open_.back().value);
  open_.pop_back();
  return add(std::move(value));
}

bool JsonReader::key(string_t& value) {
  open_.back().key = std::move(value);
  return true;
}

bool JsonReader::end_object() {
  auto& dict = open_.back().value.get_ref<Value::object_t&>();
  if (has_equal_keys(dict)) open_.back().value = Value(without_equal_keys(dict));
  return end();
}

bool JsonReader::parse_error(std::size_t /*position*/, const std::string& /*token*/,
                             const nlohmann::detail::exception& error) {
  error_ = error.what();
  return false;
}

}  // namespace lockstep
