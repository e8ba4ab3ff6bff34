#include "driver/rendezvous_members.h"

#include <lockstep/error.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace lockstep::driver {

std::vector<Slot> slots_of(const std::vector<std::string>& hosts) {
  std::vector<Slot> slots;
  std::map<std::string, int> local_sizes;
  std::map<int, int> cross_sizes;
  for (const std::string& host : hosts) {
    if (host.empty() || !std::ranges::all_of(host, [](unsigned char c) {
          return c > ' ' && c < 127 && c != '/' && c != ':' && c != ',';
        }))
      throw ConfigError("[rendezvous] " + in_quotes(host) +
                        " is no name for a host; use letters, digits and signs, without '/', ':' and ','");
    const bool goes_on = !slots.empty() && slots.back().host == host;
    if (!goes_on && local_sizes.contains(host))
      throw ConfigError("[rendezvous] the ranks of host " + in_quotes(host) + " do not stand together");
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

Members::Members(const std::vector<std::string>& hosts, Seconds patience)
    : slots_(slots_of(hosts)), patience_(patience) {
  begin();
}

void Members::begin() {
  members_.assign(slots_.size(), {});
  for (std::size_t i = 0; i < members_.size(); ++i) members_[i].slot = members_[i].slot_before = static_cast<int>(i);
  first_ask_.reset();
  in_round_ = true;
}

const Slot& Members::slot(int member) const {
  return slots_.at(static_cast<std::size_t>(members_.at(static_cast<std::size_t>(member)).slot));
}

std::optional<int> Members::called(std::string_view place) const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Slot& slot = slots_[static_cast<std::size_t>(members_[i].slot_before)];
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
  Member& asking = members_.at(static_cast<std::size_t>(member));
  in_round_ = true;
  asking.asks = true;
  if (!asking.fresh && !first_ask_) first_ask_ = now;
}

void Members::withdraw(int member) { members_.at(static_cast<std::size_t>(member)).asks = false; }

bool Members::lose(int member) {
  Member& lost = members_.at(static_cast<std::size_t>(member));
  in_round_ = true;
  lost.fresh = true;
  lost.asks = lost.named = false;
  if (std::ranges::none_of(members_, [](const Member& each) { return !each.fresh && each.asks; })) first_ask_.reset();
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

bool Members::all_ask() const { return in_round_ && std::ranges::all_of(members_, &Member::asks); }

void Members::end_round() {
  for (Member& each : members_) each = {each.slot, each.slot, false, false, false};
  first_ask_.reset();
  in_round_ = false;
}

std::vector<int> Members::take_stuck(Instant now) {
  std::vector<int> stuck;
  const auto due = deadline();
  if (!due || now < *due) return stuck;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!is_overdue(members_[i])) continue;
    members_[i].named = true;
    stuck.push_back(static_cast<int>(i));
  }
  return stuck;
}

std::optional<Instant> Members::deadline() const {
  const bool overdue = std::ranges::any_of(members_, [this](const Member& each) { return is_overdue(each); });
  if (!in_round_ || !first_ask_ || !overdue) return std::nullopt;
  return *first_ask_ + ticks(patience_);
}

}  // namespace lockstep::driver
