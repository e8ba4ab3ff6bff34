#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::horovod {

/// Where a Horovod worker of an elastic job receives notices, and the key to sign them with.
struct NoticeAddress {
  std::vector<std::pair<std::string, int>> places;  ///< addresses and ports, of all interfaces that it offers
  std::string key;

  /// The first loopback address (127.x.y.z), or nothing.
  std::optional<std::pair<std::string, int>> loopback() const;
};

/// Parses what a worker puts under /worker_addresses: base64 of the pickle of `({interface: [(address, port)]}, key)`.
/// Supports only the opcodes of such a value; calls and creates nothing by name. Returns nothing if it is anything
/// else, or longer than a few kilobytes.
std::optional<NoticeAddress> read_notice_address(std::string_view base64);

/// The complete message that the hosts have changed: digest, length, and the pickle of a HostsUpdatedRequest.
/// `timestamp` must be positive and increase from one notice to the next; otherwise workers ignore it. It always says
/// that hosts were both added and removed, so that every rank synchronises its state, as new ranks do.
std::string notice_text(std::string_view key, std::int32_t timestamp);

}  // namespace lockstep::horovod
