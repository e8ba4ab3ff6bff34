#include "base/text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

/// The edit distance: characters to add, remove or replace.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::size_t control_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0xFF; };
  if (byte(at) < 32 || byte(at) == 127) return 1;
  return byte(at) == 0xC2 && byte(at + 1) >= 0x80 && byte(at + 1) < 0xA0 ? 2 : 0;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t length = control_length(text, i)) {
      i += length - 1;  // the last byte is the character's code
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[i]));
      out += escaped;
    } else {
      if (text[i] == '"' || text[i] == '\\') out += '\\';
      out += text[i];
    }
  }
  return out + '"';
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;  // start of the text that is not copied yet
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t length = control_length(text, at);
    if (length == 0) continue;
    out.append(text, begin, at - begin).push_back('?');
    begin = at + length;
    at = begin - 1;
  }
  return out.append(text, begin);
}

std::size_t text_length(std::string_view text) {
  // Counts every byte that does not continue a character.
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string first_characters(std::string_view text, std::size_t length) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && length-- == 0) break;
  return std::string(text.substr(0, end));
}

std::string listed(const std::vector<int>& numbers) {
  if (numbers.empty()) return "none";
  std::string out = std::to_string(numbers[0]);
  for (std::size_t i = 1; i < numbers.size(); ++i)
    out += (i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  return out;
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    out += items[i];
  }
  return out;
}

std::vector<std::string> closest_first(std::vector<std::string> names, std::string_view wanted) {
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return edit_distance(name, wanted); });
  return names;
}

std::string human_size(double bytes) {
  static constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

std::string human_duration(double seconds) {
  char text[32];
  const auto whole = static_cast<long>(seconds);
  if (seconds < 60)
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%ldm %02lds", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%ldh %02ldm", whole / 3600, whole / 60 % 60);
  return text;
}

}  // namespace lockstep
