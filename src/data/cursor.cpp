#include "data/cursor.h"

#include <lockstep/error.h>

#include <utility>

#include "base/json.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kStateVersion = 1;

[[noreturn]] void refuse_state(const std::string& what) { throw ConfigError("[data] load_state_dict() got " + what); }

std::uint64_t number_in(const Value& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end() || !found->is_number_unsigned())
    refuse_state(std::string(key) + "=" + (found == state.end() ? "nothing" : to_json(*found)) +
                 "; it must be a whole number of at least 0, as state_dict() gives it");
  return found->get<std::uint64_t>();
}

}  // namespace

Cursor::Cursor(std::string fingerprint, std::int64_t total, const OrderOptions& order)
    : fingerprint_(std::move(fingerprint)), total_(total), order_(order) {}

Start Cursor::begin() {
  if (running_) now_ = {now_.epoch + 1, 0};  // the pass before was left early
  running_ = true;
  return now_;
}

void Cursor::finish() {
  now_ = {now_.epoch + 1, 0};
  running_ = false;
}

void Cursor::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw ConfigError("[data] the epoch is " + std::to_string(epoch) + "; it must be 0 or more");
  if (!running_ && epoch == now_.epoch) return;  // keeps a loaded position, as a loop over epochs sets each of them
  now_ = {epoch, 0};
  running_ = false;
}

Value Cursor::state() const {
  return {{"version", kStateVersion},
          {"fingerprint", fingerprint_},
          {"seed", order_.seed},
          {"window", static_cast<std::uint64_t>(window())},
          {"epoch", static_cast<std::uint64_t>(now_.epoch)},
          {"position", static_cast<std::uint64_t>(now_.position)}};
}

void Cursor::load_state(const Value& state) {
  if (!state.is_object()) refuse_state(to_json(state).substr(0, 200) + "; it must be what state_dict() gave");
  if (const auto version = number_in(state, "version"); version != kStateVersion)
    refuse_state("a state of version " + std::to_string(version) + ", but this release reads version " +
                 std::to_string(kStateVersion));
  if (state.value("fingerprint", Value()) != fingerprint_)
    refuse_state("the state of other data: its fingerprint is " + to_json(state.value("fingerprint", Value())) +
                 ", but this data set's is \"" + fingerprint_ + "\"; give it the data that the state was taken with");
  const std::uint64_t seed = number_in(state, "seed"), window_then = number_in(state, "window");
  if (window_then != static_cast<std::uint64_t>(window()) || (order_.shuffle && seed != order_.seed))
    refuse_state("a position in the order of seed " + std::to_string(seed) + " and window " +
                 std::to_string(window_then) + " (0: not shuffled), but this iterator has seed " +
                 std::to_string(order_.seed) + " and window " + std::to_string(window()) +
                 "; use the options that the state was taken with");
  const std::uint64_t epoch = number_in(state, "epoch"), position = number_in(state, "position");
  if (position > static_cast<std::uint64_t>(total_) || epoch > INT64_MAX)
    refuse_state("the position " + std::to_string(position) + " of epoch " + std::to_string(epoch) +
                 ", but an epoch has " + std::to_string(total_) + " rows");
  now_ = {static_cast<std::int64_t>(epoch), static_cast<std::int64_t>(position)};
  running_ = false;
}

}  // namespace lockstep::data
