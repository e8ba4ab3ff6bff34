#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::horovod {

/// One request of the key-value protocol: `PUT|GET|DELETE /<scope>/<key>`.
struct StoreRequest {
  std::string method, scope, key, body;
};

/// Limits on what a client may send.
struct RequestLimits {
  std::size_t header = 8 << 10;
  std::size_t path = 512;
  std::size_t body = 1 << 20;
};

/// Parses one HTTP/1.x request from bytes that arrive in any pieces. Pure: uses no socket. Refuses what it does not
/// understand or what is too large; never stores more than the limits.
class RequestReader {
 public:
  /// `address` is what the Host header must name, with or without a port. This blocks web pages in a browser that were
  /// tricked into using this address (DNS rebinding).
  explicit RequestReader(std::string address, RequestLimits limits = {})
      : address_(std::move(address)), limits_(limits) {}

  /// 0: more bytes are needed. 200: the request is complete. Otherwise the status to answer with; further bytes are
  /// then ignored.
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

/// A complete response. The header has exactly this spelling, because some clients compare it byte by byte.
std::string response_text(int status, std::string_view body = {});

}  // namespace lockstep::horovod
