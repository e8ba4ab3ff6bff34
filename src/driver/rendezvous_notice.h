#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::driver {

/// Where a Horovod worker of an elastic job hears notices, and the key with which they must be signed.
struct NoticeAddress {
  std::vector<std::pair<std::string, int>> places;  ///< addresses and ports, of all interfaces that it offers
  std::string key;

  /// The first one that this machine alone can reach, as it is written: 127.x.y.z. Nothing when none is.
  std::optional<std::pair<std::string, int>> loopback() const;
};

/// Reads what a worker puts below /worker_addresses: base64 of the pickle of `({interface: [(address, port)]}, key)`.
/// Knows the opcodes that such a value is made of, and no other; nothing is called or made by name. Nothing when it is
/// not exactly that, or longer than a few kilobytes.
std::optional<NoticeAddress> read_notice_address(std::string_view base64);

/// The whole message that the hosts have changed: digest, length, and the pickle of a HostsUpdatedRequest. `timestamp`
/// must be above 0 and grow from one notice to the next; a worker ignores it otherwise. Hosts are said to be both added
/// and removed, always: after that every rank synchronises its state, as those that are new do.
std::string notice_text(std::string_view key, std::int32_t timestamp);

}  // namespace lockstep::driver
