#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::driver {

/// One request of the key-value protocol: `PUT|GET|DELETE /<scope>/<key>`.
struct StoreRequest {
  std::string method, scope, key, body;
};

/// What a client may send at most.
struct RequestLimits {
  std::size_t header = 8 << 10;
  std::size_t path = 512;
  std::size_t body = 1 << 20;
};

/// Reads one HTTP/1.x request as its bytes come, however they are cut. Pure: it knows no socket. What it does not
/// understand, or what is too big, it refuses; it never holds more than the limits.
class RequestReader {
 public:
  /// `address` is what the Host header must name, with or without a port: a page in somebody's browser that was made to
  /// believe that this is its own host says another.
  explicit RequestReader(std::string address, RequestLimits limits = {})
      : address_(std::move(address)), limits_(limits) {}

  /// 0: more is needed. 200: the request is whole. Else the status to answer with; feeding on changes nothing then.
  int feed(std::string_view bytes);
  const StoreRequest& request() const { return request_; }

 private:
  int read_head(std::string_view head);
  int read_line(std::string_view line);
  int read_header(std::string_view line);

  std::string address_;
  RequestLimits limits_;
  std::string bytes_;  ///< of the head until it is whole, then of the body
  bool in_body_ = false;
  std::size_t length_ = 0;
  bool has_length_ = false;
  bool has_host_ = false;
  int status_ = 0;
  StoreRequest request_;
};

/// A whole response. The header is spelt exactly so: some clients compare it letter by letter.
std::string response_text(int status, std::string_view body = {});

}  // namespace lockstep::driver
