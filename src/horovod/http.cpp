#include "horovod/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lockstep::horovod {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

bool equal_words(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 127; });
}

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 507:
      return "Insufficient Storage";
    default:
      return "Bad Request";
  }
}

}  // namespace

int RequestReader::feed(std::string_view bytes) {
  if (status_ != 0) return status_;
  bytes_ += bytes;
  if (!in_body_) {
    const auto end = bytes_.find(kEndOfHead);
    if (std::min(end, bytes_.size()) > limits_.header) return status_ = 431;
    if (end == std::string::npos) return 0;
    if (const int refused = read_head(std::string_view(bytes_).substr(0, end))) return status_ = refused;
    bytes_.erase(0, end + kEndOfHead.size());
    in_body_ = true;
  }
  if (bytes_.size() < length_) return 0;
  bytes_.resize(length_);  // a second request on one connection is not served
  request_.body = std::move(bytes_);
  return status_ = 200;
}

int RequestReader::read_head(std::string_view head) {
  bool first = true;
  while (!head.empty()) {
    const auto end = std::min(head.find("\r\n"), head.size());
    if (const int refused = first ? read_line(head.substr(0, end)) : read_header(head.substr(0, end))) return refused;
    first = false;
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  if (first || !has_host_) return 400;
  return 0;
}

int RequestReader::read_line(std::string_view line) {
  const auto method_end = line.find(' '), path_end = line.rfind(' ');
  if (method_end == std::string_view::npos || path_end <= method_end) return 400;
  const std::string_view method = line.substr(0, method_end), version = line.substr(path_end + 1);
  std::string_view path = line.substr(method_end + 1, path_end - method_end - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 400;
  if (method != "GET" && method != "PUT" && method != "DELETE") return 405;
  if (path.size() > limits_.path) return 413;
  if (!path.starts_with('/') || !is_plain(path)) return 400;
  path.remove_prefix(1);
  const auto slash = path.find('/');
  if (slash == 0 || slash == std::string_view::npos || slash + 1 == path.size()) return 400;
  if (path.find('/', slash + 1) != std::string_view::npos) return 400;
  request_ = {std::string(method), std::string(path.substr(0, slash)), std::string(path.substr(slash + 1)), {}};
  return 0;
}

int RequestReader::read_header(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 || !is_plain(line.substr(0, colon))) return 400;
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (equal_words(name, "transfer-encoding")) return 400;
  if (equal_words(name, "host")) {
    if (has_host_ || value.substr(0, value.find(':')) != address_) return 400;
    has_host_ = true;
  }
  if (equal_words(name, "content-length")) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    if (error == std::errc::result_out_of_range) return 413;
    if (error != std::errc() || end != value.data() + value.size() || has_length_) return 400;
    if (length > limits_.body) return 413;
    has_length_ = true;
    length_ = length;
  }
  return 0;
}

std::string response_text(int status, std::string_view body) {
  std::string text = "HTTP/1.1 " + std::to_string(status) + " " + reason(status) +
                     "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  return text.append(body);
}

}  // namespace lockstep::horovod
