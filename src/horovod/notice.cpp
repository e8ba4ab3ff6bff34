#include "horovod/notice.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "horovod/hmac.h"

namespace lockstep::horovod {
namespace {

constexpr std::size_t kMostText = 16 << 10;
constexpr std::size_t kMostPlaces = 256;
constexpr std::size_t kMostKey = 64;
constexpr std::size_t kMostOnStack = 2 * kMostPlaces;
constexpr std::uint8_t kAddedAndRemoved = 3;

std::optional<unsigned> six_bits(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  if (letter == '+') return 62;
  if (letter == '/') return 63;
  return std::nullopt;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > kMostText) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t gathered = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto bits = i < text.size() - padding ? six_bits(text[i]) : 0;
    if (!bits) return std::nullopt;
    gathered = gathered << 6 | *bits;
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(gathered >> shift & 0xff);
    gathered = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// A value of one of the expected kinds, including a pickle's mark.
struct Item {
  enum class Kind { mark, number, text, bytes, pair, list, dict };
  Kind kind;
  std::int64_t number = 0;
  std::string text{};
  std::vector<Item> items{};  ///< a dict's: key, value, key, value
};

/// The stack machine of a pickle, as far as it is needed. Any error stops it.
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<Item> read() {
    while (!rest_.empty()) {
      const char opcode = rest_.front();
      rest_.remove_prefix(1);
      if (opcode == '.') {
        if (!rest_.empty() || stack_.size() != 1) return std::nullopt;
        return std::move(stack_.front());
      }
      if (!obey(opcode) || stack_.size() > kMostOnStack) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  bool obey(char opcode) {
    switch (opcode) {
      case '\x80':  // PROTO
        return take_number(1) >= 2;
      case '\x95':  // FRAME
        return take_number(8) == static_cast<std::int64_t>(rest_.size());
      case '\x94':  // MEMOIZE
        if (stack_.empty() || stack_.back().kind == Item::Kind::mark) return false;
        // A value that is still being filled, or could be repeated without limit, is not reused.
        memo_.push_back(is_plain(stack_.back()) ? std::optional(stack_.back()) : std::nullopt);
        return true;
      case 'h': {  // BINGET
        const auto at = take_number(1);
        if (at < 0 || at >= static_cast<std::int64_t>(memo_.size())) return false;
        const auto& known = memo_[static_cast<std::size_t>(at)];
        if (known) stack_.push_back(*known);
        return known.has_value();
      }
      case '(':  // MARK
        return push({Item::Kind::mark});
      case '}':  // EMPTY_DICT
        return push({Item::Kind::dict});
      case ']':  // EMPTY_LIST
        return push({Item::Kind::list});
      case 'K':  // BININT1
        return push_number(1);
      case 'M':  // BININT2
        return push_number(2);
      case 'J':  // BININT
        return push_number(4);
      case '\x8c':  // SHORT_BINUNICODE
        return push_text(Item::Kind::text);
      case 'C':  // SHORT_BINBYTES
        return push_text(Item::Kind::bytes);
      case '\x86':  // TUPLE2
        return make_pair();
      case 'a':  // APPEND
        return add_to(Item::Kind::list, 1);
      case 's':  // SETITEM
        return add_to(Item::Kind::dict, 2);
      case 'e':  // APPENDS
        return add_from_mark(Item::Kind::list);
      case 'u':  // SETITEMS
        return add_from_mark(Item::Kind::dict);
      default:
        return false;
    }
  }

  static bool is_plain(const Item& item) {
    return item.kind == Item::Kind::text || item.kind == Item::Kind::bytes || item.kind == Item::Kind::number;
  }

  /// -1 if it is incomplete or negative.
  std::int64_t take_number(std::size_t size) {
    if (rest_.size() < size) return -1;
    std::uint64_t number = 0;
    for (std::size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(size);
    return number > INT32_MAX ? -1 : static_cast<std::int64_t>(number);
  }

  bool push(Item item) {
    stack_.push_back(std::move(item));
    return true;
  }
  bool push_number(std::size_t size) {
    const auto number = take_number(size);
    return number >= 0 && push({Item::Kind::number, number});
  }
  bool push_text(Item::Kind kind) {
    const auto size = take_number(1);
    if (size < 0 || rest_.size() < static_cast<std::size_t>(size)) return false;
    Item item{kind, 0, std::string(rest_.substr(0, static_cast<std::size_t>(size)))};
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return push(std::move(item));
  }

  /// The last `count` items of the stack, if there are enough and none is a mark.
  std::optional<std::vector<Item>> take(std::size_t count) {
    if (stack_.size() < count) return std::nullopt;
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    if (std::ranges::count(begin, stack_.end(), Item::Kind::mark, &Item::kind) > 0) return std::nullopt;
    std::vector<Item> items(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    return items;
  }
  /// Pairs could be nested without limit.
  bool make_pair() {
    auto items = take(2);
    if (!items || std::ranges::count(*items, Item::Kind::pair, &Item::kind) > 0) return false;
    return push({Item::Kind::pair, 0, {}, std::move(*items)});
  }
  bool add_to(Item::Kind kind, std::size_t count) {
    auto items = take(count);
    if (!items || stack_.empty() || stack_.back().kind != kind) return false;
    auto& into = stack_.back().items;
    into.insert(into.end(), std::make_move_iterator(items->begin()), std::make_move_iterator(items->end()));
    return true;
  }
  bool add_from_mark(Item::Kind kind) {
    const auto mark = std::ranges::find(stack_.rbegin(), stack_.rend(), Item::Kind::mark, &Item::kind);
    const auto count = static_cast<std::size_t>(mark - stack_.rbegin());
    if (mark == stack_.rend() || (kind == Item::Kind::dict && count % 2 != 0)) return false;
    stack_.erase(std::next(mark).base());
    return add_to(kind, count);
  }

  std::string_view rest_;
  std::vector<Item> stack_;
  std::vector<std::optional<Item>> memo_;
};

std::optional<std::pair<std::string, int>> place_in(const Item& item) {
  if (item.kind != Item::Kind::pair) return std::nullopt;
  const Item &address = item.items[0], &port = item.items[1];
  if (address.kind != Item::Kind::text || port.kind != Item::Kind::number) return std::nullopt;
  if (port.number < 1 || port.number > 65535) return std::nullopt;
  return std::pair{address.text, static_cast<int>(port.number)};
}

/// As a string of protocol 2: BINUNICODE.
std::string pickled(std::string_view text) {
  return std::string("X") + static_cast<char>(text.size()) + std::string(3, '\0') + std::string(text);
}

std::string little_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

}  // namespace

std::optional<std::pair<std::string, int>> NoticeAddress::loopback() const {
  for (const auto& place : places) {
    in_addr address{};
    if (::inet_pton(AF_INET, place.first.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET)
      return place;
  }
  return std::nullopt;
}

std::optional<NoticeAddress> read_notice_address(std::string_view base64) {
  const auto bytes = from_base64(base64);
  const auto value = bytes ? PickleReader(*bytes).read() : std::nullopt;
  if (!value || value->kind != Item::Kind::pair) return std::nullopt;
  const Item &interfaces = value->items[0], &key = value->items[1];
  if (interfaces.kind != Item::Kind::dict || key.kind != Item::Kind::bytes) return std::nullopt;
  if (key.text.empty() || key.text.size() > kMostKey) return std::nullopt;
  NoticeAddress address{{}, key.text};
  for (std::size_t i = 0; i < interfaces.items.size(); i += 2) {
    const Item &name = interfaces.items[i], &list = interfaces.items[i + 1];
    if (name.kind != Item::Kind::text || list.kind != Item::Kind::list) return std::nullopt;
    for (const Item& each : list.items) {
      auto place = place_in(each);
      if (!place || address.places.size() >= kMostPlaces) return std::nullopt;
      address.places.push_back(std::move(*place));
    }
  }
  return address;
}

std::string notice_text(std::string_view key, std::int32_t timestamp) {
  std::string body = "\x80\x02";                                         // PROTO 2
  body += "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81";  // GLOBAL, EMPTY_TUPLE, NEWOBJ
  body += "}(" + pickled("timestamp") + "J" + little_endian(static_cast<std::uint32_t>(timestamp));
  body += pickled("res") + "K" + static_cast<char>(kAddedAndRemoved) + "ub.";  // SETITEMS, BUILD, STOP
  return hmac_sha256(key, body) + little_endian(static_cast<std::uint32_t>(body.size())) + body;
}

}  // namespace lockstep::horovod
