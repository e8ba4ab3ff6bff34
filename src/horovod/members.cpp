#include "horovod/members.h"

#include <lockstep/error.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace lockstep::horovod {
namespace {

/// Longer names are refused: a path contains a name and more, and its length is limited.
constexpr std::size_t kLongestName = 200;

/// Characters that every client sends in a path unescaped and that have no other meaning there.
constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

bool is_name(std::string_view host) {
  return !host.empty() && host.size() <= kLongestName && host.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

std::vector<Slot> slots_of(const std::vector<std::string>& hosts) {
  std::vector<Slot> slots;
  std::map<std::string, int> local_sizes;
  std::map<int, int> cross_sizes;
  for (const std::string& host : hosts) {
    if (!is_name(host))
      throw ConfigError("[rendezvous] hosts has " + in_quotes(host) +
                        ", which cannot be the name of a host; use letters, digits, '-', '.', '_' and '~', at most " +
                        std::to_string(kLongestName) + " of them");
    const bool goes_on = !slots.empty() && slots.back().host == host;
    if (!goes_on && local_sizes.contains(host))
      throw ConfigError("[rendezvous] in hosts, the ranks of " + in_quotes(host) +
                        " are not adjacent; name all ranks of a host one after another");
    Slot slot{host, static_cast<int>(slots.size()), static_cast<int>(hosts.size())};
    slot.local_rank = local_sizes[host]++;
    slot.cross_rank = cross_sizes[slot.local_rank]++;
    slots.push_back(std::move(slot));
  }
  for (Slot& slot : slots) {
    slot.local_size = local_sizes[slot.host];
    slot.cross_size = cross_sizes[slot.local_rank];
  }
  return slots;
}

Members::Members(const std::vector<std::string>& hosts, MembersOptions options)
    : slots_(slots_of(hosts)), options_(options) {
  if (options_.fewest < 0 || options_.fewest > static_cast<int>(slots_.size()))
    throw ConfigError("[rendezvous] min_workers is " + std::to_string(options_.fewest) + ", but there " +
                      (slots_.size() == 1 ? "is 1 worker" : "are " + std::to_string(slots_.size()) + " workers") +
                      "; choose it from 1 to the number of workers");
  begin();
}

void Members::begin() {
  members_.assign(slots_.size(), {});
  for (std::size_t i = 0; i < members_.size(); ++i) members_[i].slot = static_cast<int>(i);
  first_ask_.reset();
  in_round_ = true;
}

const Slot& Members::slot(int member) const { return slots_.at(static_cast<std::size_t>(at(member).slot)); }

std::optional<int> Members::called(std::string_view place) const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Slot& slot = members_[i].told;
    if (!members_[i].fresh && place == slot.host + ":" + std::to_string(slot.local_rank)) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<int> Members::newcomer(int rank) const {
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (in_round_ && members_[i].fresh && !members_[i].asks && members_[i].slot == rank) return static_cast<int>(i);
  return std::nullopt;
}

void Members::ask(int member, Instant now) {
  Member& asking = at(member);
  const bool were_expected = are_expected();
  asking.asks = true;
  asking.joining = false;
  if (!asking.fresh) {
    in_round_ = true;
    if (!first_ask_) first_ask_ = now;
  }
  if (first_ask_ && !were_expected && are_expected()) first_ask_ = now;
}

void Members::withdraw(int member) { at(member).asks = false; }

void Members::connected(int local_rank, int cross_rank) {
  for (Member& each : members_)
    if (each.told.local_rank == local_rank && each.told.cross_rank == cross_rank) each.joining = false;
}

bool Members::are_joining_beside(int member) const {
  return std::ranges::any_of(members_, [&](const Member& each) { return each.joining && &each != &at(member); });
}

bool Members::lose(int member, Instant now) {
  Member& lost = at(member);
  const bool were_expected = are_expected();
  lost.asks = lost.named = lost.joining = false;
  if (lost.away) return true;
  in_round_ = true;
  lost.fresh = true;
  lost.done = false;
  if (std::ranges::none_of(members_, [](const Member& each) { return !each.fresh && each.asks; }))
    first_ask_.reset();
  else if (!were_expected)
    first_ask_ = now;
  if (lost.slot != 0 || std::ranges::all_of(members_, &Member::fresh)) return true;
  Member* heir = nullptr;
  for (Member& each : members_) {
    const bool beside = slots_[static_cast<std::size_t>(each.slot)].host == slots_.front().host;
    if (!each.fresh && beside && (heir == nullptr || each.slot < heir->slot)) heir = &each;
  }
  if (heir == nullptr) return false;
  std::swap(heir->slot, lost.slot);
  return true;
}

// ---------------------------------------------------------------- the end of a round

Members::Round Members::round(Instant now) const {
  if (!in_round_) return Round::open;
  if (std::ranges::all_of(members_, &Member::asks)) return Round::whole;
  const auto due = smaller_at();
  return due && now >= *due ? Round::smaller : Round::open;
}

std::optional<Instant> Members::smaller_at() const {
  const auto stays = [](const Member& each) { return !each.fresh; };
  const bool enough = options_.fewest > 0 && std::ranges::count_if(members_, stays) >= options_.fewest;
  const bool all_ask = std::ranges::all_of(members_, [](const Member& each) { return each.fresh || each.asks; });
  if (!in_round_ || !first_ask_ || !enough || !all_ask) return std::nullopt;
  return *first_ask_ + ticks(options_.go_on_after);
}

std::vector<int> Members::end_round(Round how) {
  first_ask_.reset();
  in_round_ = false;
  return how == Round::whole ? end_whole_round() : end_smaller_round();
}

std::vector<int> Members::end_whole_round() {
  std::vector<int> joined;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& each = members_[i];
    if (each.fresh) joined.push_back(static_cast<int>(i));
    each = {each.slot, slots_[static_cast<std::size_t>(each.slot)], false};
    each.joining = true;
  }
  return joined;
}

std::vector<int> Members::end_smaller_round() {
  std::vector<int> left;
  std::vector<Member*> stay;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& each = members_[i];
    if (!each.fresh) stay.push_back(&each);
    if (each.fresh && !each.away) left.push_back(static_cast<int>(i));
    each.away = each.fresh;
  }
  std::ranges::sort(stay, {}, &Member::slot);
  std::vector<std::string> hosts;
  for (const Member* each : stay) hosts.push_back(slots_[static_cast<std::size_t>(each->slot)].host);
  const auto slots = slots_of(hosts);
  for (std::size_t i = 0; i < stay.size(); ++i) {
    *stay[i] = {stay[i]->slot, slots[i], false};
    stay[i]->joining = true;
  }
  return left;
}

// ---------------------------------------------------------------- expected members

std::optional<int> Members::due_notice() const {
  if (in_round_ || std::ranges::none_of(members_, &Member::away)) return std::nullopt;
  if (!std::ranges::all_of(members_, [](const Member& each) { return each.away ? each.asks : !each.done; }))
    return std::nullopt;
  const auto first = std::ranges::find(members_, 0, &Member::slot);
  return static_cast<int>(first - members_.begin());
}

std::vector<int> Members::take_needless() {
  std::vector<int> needless;
  if (!std::ranges::all_of(members_, [](const Member& each) { return each.away || each.done; })) return needless;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].away && !std::exchange(members_[i].named, true)) needless.push_back(static_cast<int>(i));
  return needless;
}

std::vector<int> Members::take_stuck(Instant now) {
  std::vector<int> stuck;
  const auto due = stuck_at();
  if (!due || now < *due) return stuck;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!is_overdue(members_[i])) continue;
    members_[i].named = true;
    stuck.push_back(static_cast<int>(i));
  }
  return stuck;
}

/// Whether members must come to this round: a member has died since the last one, or has returned and will not come, or
/// all absent members are ready.
bool Members::are_expected() const {
  const auto is_lost = [](const Member& each) { return each.done || (each.fresh && !each.away); };
  if (std::ranges::any_of(members_, is_lost)) return true;
  return std::ranges::any_of(members_, &Member::away) &&
         std::ranges::all_of(members_, [](const Member& each) { return !each.away || each.asks; });
}

std::optional<Instant> Members::stuck_at() const {
  const bool overdue = std::ranges::any_of(members_, [this](const Member& each) { return is_overdue(each); });
  if (!in_round_ || !first_ask_ || !overdue || !are_expected()) return std::nullopt;
  return *first_ask_ + ticks(options_.patience);
}

/// An overdue member prevents a smaller round from ending: both never run at once.
std::optional<Instant> Members::deadline() const {
  const auto stuck = stuck_at();
  return stuck ? stuck : smaller_at();
}

}  // namespace lockstep::horovod
