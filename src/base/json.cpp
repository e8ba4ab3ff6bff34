#include "base/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <lockstep/array.h>
#include <lockstep/error.h>

#include "base/json_reader.h"
#include "base/text.h"
#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view kNan = "\x01NaN";
constexpr std::string_view kInfinity = "\x01Infinity";
constexpr std::string_view kMinusInfinity = "\x01-Infinity";

/// How a character is written in a string; empty: unchanged.
std::string_view escaped(char c) {
  static const auto kControls = [] {
    std::array<std::string, 32> words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      words[i] = std::string("\\u00") + kDigits[i >> 4] + kDigits[i & 15];
    }
    words['\b'] = "\\b";
    words['\t'] = "\\t";
    words['\n'] = "\\n";
    words['\f'] = "\\f";
    words['\r'] = "\\r";
    return words;
  }();
  if (c == '"') return "\\\"";
  if (c == '\\') return "\\\\";
  return c >= 0 && c < 32 ? std::string_view(kControls[static_cast<std::size_t>(c)]) : std::string_view();
}

void append_pretty(std::string& out, const Value& value, int depth) {
  const auto new_line = [&](int level) { out.append(1, '\n').append(static_cast<std::size_t>(level) * 2, ' '); };
  if (value.is_structured() && !value.empty()) {
    out += value.is_object() ? '{' : '[';
    bool first = true;
    for (auto item = value.begin(); item != value.end(); ++item) {
      if (!std::exchange(first, false)) out += ',';
      new_line(depth + 1);
      if (value.is_object()) {
        append_json_string(out, item.key());
        out += ": ";
      }
      append_pretty(out, *item, depth + 1);
    }
    new_line(depth);
    out += value.is_object() ? '}' : ']';
  } else {
    append_json(out, value);
  }
}

/// The words for floats that JSON lacks, as strings that no file of ours holds (a control character is always escaped).
std::string with_marked_floats(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\' && i + 1 < text.size()) {
        out += c;
        out += text[++i];
        continue;
      }
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else {
      const auto word_at = [&](std::string_view word) { return text.substr(i, word.size()) == word; };
      std::string_view word = word_at("NaN")         ? "NaN"
                              : word_at("Infinity")  ? "Infinity"
                              : word_at("-Infinity") ? "-Infinity"
                                                     : "";
      if (!word.empty()) {
        out.append("\"\\u0001").append(word).append("\"");
        i += word.size() - 1;
        continue;
      }
    }
    out += c;
  }
  return out;
}

void restore_floats(Value& value) {
  if (value.is_structured()) {
    for (auto& item : value) restore_floats(item);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == kNan)
      value = std::numeric_limits<double>::quiet_NaN();
    else if (text == kInfinity)
      value = std::numeric_limits<double>::infinity();
    else if (text == kMinusInfinity)
      value = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

void append_json_number(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
  } else if (std::isinf(number)) {
    out += number > 0 ? "Infinity" : "-Infinity";
  } else {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, number).ptr;
    const std::string_view digits(text, static_cast<std::size_t>(end - text));
    out += digits;
    if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
}

void append_json_string(std::string& out, std::string_view text) {
  const auto plain = [](char c) { return c >= 32 && c < 127 && c != '"' && c != '\\'; };
  out += '"';
  std::size_t begin = 0;  // start of the unchanged text that is not copied yet
  for (std::size_t at = 0; at < text.size();) {
    if (plain(text[at])) {
      ++at;
      continue;
    }
    const auto [found, size] = utf8_sequence(text.substr(at));
    const std::string_view instead = found != Utf8::whole ? kReplacement : escaped(text[at]);
    if (!instead.empty()) {
      out.append(text, begin, at - begin).append(instead);
      begin = at + size;
    }
    at += size;
  }
  out.append(text, begin).append(1, '"');
}

void append_json(std::string& out, const Value& value) {
  switch (value.type()) {
    case Value::value_t::object: {
      out += '{';
      bool first = true;
      for (auto item = value.begin(); item != value.end(); ++item) {
        if (!std::exchange(first, false)) out += ", ";
        append_json_string(out, item.key());
        out += ": ";
        append_json(out, *item);
      }
      out += '}';
      return;
    }
    case Value::value_t::array: {
      out += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out += ", ";
        append_json(out, value[i]);
      }
      out += ']';
      return;
    }
    case Value::value_t::string:
      append_json_string(out, value.get_ref<const std::string&>());
      return;
    case Value::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return;
    case Value::value_t::number_integer:
      out += std::to_string(value.get<std::int64_t>());
      return;
    case Value::value_t::number_unsigned:
      out += std::to_string(value.get<std::uint64_t>());
      return;
    case Value::value_t::number_float:
      append_json_number(out, value.get<double>());
      return;
    case Value::value_t::binary: {
      const auto array = array_in(value);
      append_json(out, array ? summary(*array) : Value(static_cast<const Bytes&>(value.get_binary())));
      return;
    }
    case Value::value_t::null:
    case Value::value_t::discarded:
      out += "null";
      return;
  }
}

std::string to_json(const Value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string to_pretty_json(const Value& value) {
  std::string out;
  append_pretty(out, value, 0);
  out += '\n';
  return out;
}

void check_json_depth(std::string_view text, std::string_view where) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else
        in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        throw StorageError("[json] " + std::string(where) + " is nested more than " + std::to_string(kMaxJsonDepth) +
                           " levels deep");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

Value parse_json(std::string_view text, std::string_view where) {
  check_json_depth(text, where);
  // Most files have none of these words and are parsed unchanged.
  const bool marked = text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  if (!marked) return JsonReader::read(text, where);
  Value value = JsonReader::read(with_marked_floats(text), where);
  restore_floats(value);
  return value;
}

const Value* find_path(const Value& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  if (auto found = object.find(key); found != object.end()) return &*found;
  const auto slash = key.find('/');
  if (slash == std::string::npos) return nullptr;
  auto outer = object.find(key.substr(0, slash));
  return outer == object.end() ? nullptr : find_path(*outer, key.substr(slash + 1));
}

std::optional<double> number_of(const Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<double> number_at(const Value& object, const std::string& key) {
  const Value* found = find_path(object, key);
  return found != nullptr ? number_of(*found) : std::nullopt;
}

}  // namespace lockstep

template <>
const lockstep::Value& lockstep::Value::operator[](const std::string& key) const {
  if (const auto found = find(key); found != end()) return *found;
  std::vector<std::string> keys;
  if (is_object())
    for (const auto& item : items()) keys.push_back(lockstep::in_quotes(item.key()));
  throw lockstep::ConfigError("[value] there is no key " + lockstep::in_quotes(key) + "; " +
                              (!is_object()   ? std::string("this is not a dict but ") + type_name()
                               : keys.empty() ? "the dict is empty"
                                              : "there are " + lockstep::joined(keys, ", ")));
}
