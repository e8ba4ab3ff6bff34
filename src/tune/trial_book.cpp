#include "tune/trial_book.h"

#include <lockstep/error.h>

#include <array>

#include "base/text.h"

namespace lockstep::tune {
namespace {

constexpr std::array<const char*, 5> kStateWords = {"pending", "running", "paused", "terminated", "error"};

}  // namespace

const char* word_of(TrialState state) { return kStateWords[static_cast<std::size_t>(state)]; }

TrialState trial_state_of(std::string_view word) {
  for (std::size_t i = 0; i < kStateWords.size(); ++i)
    if (word == kStateWords[i]) return static_cast<TrialState>(i);
  throw StorageError("[tune] a trial has the unknown state " + in_quotes(word));
}

const TrialBook::Entry& TrialBook::at(TrialNumber trial) const {
  if (trial < 0 || trial >= size())
    throw ConfigError("[tune] there is no trial " + std::to_string(trial) + "; there are " + std::to_string(size()));
  return entries_[static_cast<std::size_t>(trial)];
}

std::vector<TrialNumber> TrialBook::in_state(TrialState state) const {
  std::vector<TrialNumber> trials;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].state == state) trials.push_back(static_cast<TrialNumber>(i));
  return trials;
}

void TrialBook::enter(TrialNumber trial, TrialState state) {
  Entry& entry = entries_[static_cast<std::size_t>(trial)];
  if (entry.state == TrialState::pending) fresh_.erase(trial);
  if (entry.state == TrialState::paused) paused_.erase(trial);
  --counts_[static_cast<int>(entry.state)];
  ++counts_[static_cast<int>(state)];
  entry.state = state;
  if (state == TrialState::pending) fresh_.insert(trial);
  if (state == TrialState::paused) paused_.insert(trial);
}

void TrialBook::apply(const Event& event) {
  using Kind = Event::Kind;
  if (event.kind == Kind::wait) {
    waits_ = true;
    return;
  }
  if (event.kind == Kind::exhausted) {
    exhausted_ = true;
    return;
  }
  if (event.kind == Kind::none) return;
  if (event.kind == Kind::reopen) {
    for (const TrialNumber trial : in_state(TrialState::running))
      if (!at(trial).stopping && !at(trial).pausing) enter(trial, TrialState::pending);
    return;
  }
  if (event.kind == Kind::ask) {
    entries_.emplace_back();
    ++counts_[0];
    fresh_.insert(event.trial);
    return;
  }
  at(event.trial);
  Entry& entry = entries_[static_cast<std::size_t>(event.trial)];
  switch (event.kind) {
    case Kind::start:
      ++entry.attempts;
      entry.stopping = entry.pausing = false;
      entry.iterations = event.iteration;
      if (event.outcome == "exploit") {
        entry.has_checkpoint = true;
        entry.checkpoint_iteration = event.iteration;
      }
      enter(event.trial, TrialState::running);
      break;
    case Kind::report:
      entry.iterations = event.iteration;
      entry.pausing = event.outcome == "pause";
      entry.stopping = event.outcome == "stop" || event.outcome == "reached";
      break;
    case Kind::checkpoint:
      entry.has_checkpoint = true;
      entry.checkpoint_iteration = event.iteration;
      break;
    case Kind::retry:
      ++entry.failures;
      enter(event.trial, TrialState::pending);
      break;
    case Kind::pause:
      enter(event.trial, TrialState::paused);
      break;
    case Kind::drop:
      entry.dropped = true;
      if (entry.state == TrialState::running) break;
      [[fallthrough]];
    case Kind::end:
      waits_ = false;
      enter(event.trial, TrialState::terminated);
      break;
    case Kind::fail:
      waits_ = false;
      ++entry.failures;
      enter(event.trial, TrialState::error);
      break;
    default:
      break;
  }
}

}  // namespace lockstep::tune
