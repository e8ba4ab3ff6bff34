#include "collective/spanning_group.h"

#include <pthread.h>

#include <algorithm>
#include <string>

#include "collective/guardian.h"
#include "collective/spanning_parts.h"

namespace lockstep::collective {
namespace {

/// Last words that nobody takes are given up after this time.
constexpr std::chrono::milliseconds kForLastWords{100};
constexpr std::chrono::seconds kForReport{1};
/// The watcher looks for deaths so often, in case the neighbour who should report them is stopped.
constexpr std::chrono::seconds kWatch{1};

}  // namespace

SpanningGroup::SpanningGroup(std::unique_ptr<Communicator> local, std::unique_ptr<Links> links, Nodes nodes, int rank,
                             std::size_t chunk_bytes)
    : local_(std::move(local)),
      links_(std::move(links)),
      nodes_(std::move(nodes)),
      rank_(rank),
      carriers_(nodes_.carriers()),
      chunk_bytes_(chunk_bytes) {
  for (int each = 0; each < nodes_.count(); ++each) hellos_.push_back(std::make_unique<Hello>());
  mail_ = std::make_unique<LinkMail>(
      *links_, rank_, size(), [this](const LinkError& error, const char* what, std::uint64_t number) {
        const Fault fault = fault_of(error);
        local_->region().set_fault(fault);
        try {
          throw_fault(local_->region(), place(), *local_->region().fault(), {what, number, timeout()});
        } catch (...) {
          return std::current_exception();
        }
      });
  for (int each = 0; each < nodes_.count(); ++each) {
    if (each == node() || static_cast<int>(nodes_.ranks[each].size()) <= place()) continue;
    const int peer = nodes_.ranks[each][place()];
    auto& entry = peers_[peer] = std::make_unique<Peer>();
    try {
      entry->heard = links_->receive(&entry->words, sizeof entry->words, peer, kLastWords);
    } catch (const LinkError&) {
      entry.reset();  // it is gone already; the first call says so
      peers_.erase(peer);
    }
  }
  watcher_ = std::make_unique<std::thread>([this] { watch(); });
}

SpanningGroup::~SpanningGroup() {
  if (!local_->region().is_here()) {
    // The threads and the connections belong to the parent.
    static_cast<void>(watcher_.release());
    static_cast<void>(mail_.release());
    for (auto& [_, peer] : peers_) static_cast<void>(peer.release());
    static_cast<void>(links_.release());
    return;
  }
  leaving_.store(true);
  local_->region().ring_bell(place());
  watcher_->join();
  mail_.reset();
  greetings_.clear();
  peers_.clear();
  links_.reset();
}

void SpanningGroup::check_here() const { check_member(local_->region(), place()); }

void SpanningGroup::abort() {
  check_here();
  local_->abort();
}

void SpanningGroup::call(const Intent& intent, const std::function<void()>& body) {
  check_here();
  const std::lock_guard lock(mutex_);
  number_ += 1;
  intent_ = intent;
  try {
    local_->together(intent, body);
  } catch (...) {
    greetings_.clear();
    local_->region().set_fault({FaultKind::aborted, place(), place()});  // unless it has one
    throw;
  }
}

// ---- faults -------------------------------------------------------------------------------------------------------

/// Sleeps until the group of this node has a fault, or this rank leaves; then tells the other nodes and closes the
/// links, which ends waits here and there. The bell of a rank rings for nothing else, as messages use links.
void SpanningGroup::watch() {
  ::pthread_setname_np(::pthread_self(), "ls-watcher");
  Region& region = local_->region();
  RankWords& words = region.rank(place());
  words.bell_sleepers.fetch_add(1);
  std::optional<Fault> fault;
  for (;;) {
    const std::uint32_t bell = words.bell.load();
    fault = region.fault();
    if (fault || leaving_.load()) break;
    if (!futex_wait(words.bell, bell, now() + kWatch)) report_deaths(region, place());
  }
  words.bell_sleepers.fetch_sub(1);
  if (!fault)
    say_last_words(FaultKind::gone, rank_);
  else if (fault->kind >= FaultKind::lost)
    say_last_words(fault->kind, fault->culprit);
  else
    say_last_words(fault->kind == FaultKind::died        ? FaultKind::lost
                   : fault->kind == FaultKind::timed_out ? FaultKind::silent
                                                         : FaultKind::dropped,
                   region.number(fault->culprit));
  links_->abort();
}

void SpanningGroup::say_last_words(FaultKind kind, int culprit) {
  const LastWords words{kind, culprit};
  std::vector<Links::Pending> said;
  for (int each = 0; each < nodes_.count(); ++each) {
    if (each == node() || static_cast<int>(nodes_.ranks[each].size()) <= place()) continue;
    const int peer = nodes_.ranks[each][place()];
    if (peer == culprit) continue;
    try {
      said.push_back(links_->send(&words, sizeof words, peer, kLastWords));
    } catch (const LinkError&) {  // it is gone
    }
  }
  const Instant deadline = now() + kForLastWords;
  for (const auto& each : said) {
    try {
      each->wait(std::chrono::ceil<std::chrono::milliseconds>(std::max<Instant::duration>(deadline - now(), {})));
    } catch (const LinkError&) {  // it hears from the closed connection
    }
  }
}

Fault SpanningGroup::fault_of(const LinkError& error) {
  switch (error.kind()) {
    case LinkError::Kind::aborted: {
      // There is a fault, or the thread whose wait reached its timeout is about to report it.
      GroupWords& words = local_->region().group();
      words.gong_sleepers.fetch_add(1);
      const Instant deadline = now() + kForReport;
      for (bool in_time = true; in_time && !leaving_.load() && !local_->region().fault();) {
        const std::uint32_t gong = words.gong.load();
        in_time = local_->region().fault() || futex_wait(words.gong, gong, deadline);
      }
      words.gong_sleepers.fetch_sub(1);
      return {FaultKind::aborted, place(), place()};  // if nobody did
    }
    case LinkError::Kind::silent:
      if (error.peer() != kAnySource) return {FaultKind::silent, error.peer(), place()};
      return {FaultKind::timed_out, place(), place()};
    case LinkError::Kind::lost:
      break;
  }
  const std::lock_guard lock(last_words_);
  if (const auto peer = peers_.find(error.peer()); peer != peers_.end() && peer->second->heard) {
    const auto heard = std::move(peer->second->heard);
    try {
      heard->wait(kForLastWords);
      const LastWords& words = peer->second->words;
      // A word about this node's own ranks is of no use here: they live.
      if (words.culprit >= 0 && words.culprit < size() && nodes_.node_of[words.culprit] != node() &&
          words.kind >= FaultKind::lost)
        return {words.kind, words.culprit, place()};
    } catch (const LinkError&) {  // it had no time for them
    }
  }
  return {FaultKind::lost, error.peer() == kAnySource ? rank_ : error.peer(), place()};
}

void SpanningGroup::lose(const LinkError& error) {
  const Fault fault = fault_of(error);
  local_->fail(fault.kind, fault.culprit);
}

// ---- transfers ----------------------------------------------------------------------------------------------------

Links::Pending SpanningGroup::send(const void* data, std::size_t bytes, int peer, int channel) {
  if (bytes == 0) return nullptr;
  try {
    return links_->send(data, bytes, peer, channel);
  } catch (const LinkError& error) {
    lose(error);
  }
}

Links::Pending SpanningGroup::receive(void* data, std::size_t bytes, int peer, int channel) {
  if (bytes == 0) return nullptr;
  try {
    return links_->receive(data, bytes, peer, channel);
  } catch (const LinkError& error) {
    lose(error);
  }
}

int SpanningGroup::wait(Links::Transfer& transfer) {
  try {
    return transfer.wait(timeout());
  } catch (const LinkError& error) {
    lose(error);
  }
}

void SpanningGroup::wait_all(std::vector<Links::Pending>& transfers) {
  for (const auto& each : transfers)
    if (each) wait(*each);
  transfers.clear();
}

void SpanningGroup::post_send(const Message& message, MessageDone done) {
  check_here();
  mail_->post_send(message, std::move(done));
}

void SpanningGroup::post_receive(const Message& message, MessageDone done) {
  check_here();
  mail_->post_receive(message, std::move(done));
}

void SpanningGroup::finish_sends(std::chrono::milliseconds within) {
  check_here();
  mail_->finish_sends(within);
}

// ---- agreement ----------------------------------------------------------------------------------------------------

void SpanningGroup::greet(ConstBuffer payload) {
  if (!leads()) return;
  Hello& mine = *hellos_[node()];
  mine.intent = intent_;
  if (payload.bytes > 0) std::memcpy(mine.payload.data(), payload.data, payload.bytes);
  greetings_.clear();
  for (int each = 0; each < nodes_.count(); ++each)
    if (each != node())
      greetings_.push_back(receive(hellos_[each].get(), sizeof(Hello), nodes_.ranks[each][0], kHello));
  for (int each = 0; each < nodes_.count(); ++each)
    if (each != node()) greetings_.push_back(send(&mine, sizeof(Hello), nodes_.ranks[each][0], kHello));
}

/// `make_result` is called on the first rank of each node when all have been heard; all get `result` from it.
void SpanningGroup::agree(Buffer result, const std::function<void()>& make_result) {
  std::vector<std::byte> told(sizeof(Verdict) + result.bytes);
  Verdict verdict;
  if (leads()) {
    wait_all(greetings_);
    for (int each = 0; each < nodes_.count() && verdict.different < 0; ++each)
      if (hellos_[each]->intent != intent_) verdict = {hellos_[each]->intent, nodes_.ranks[each][0]};
    if (verdict.different < 0 && make_result) make_result();
    std::memcpy(told.data(), &verdict, sizeof verdict);
    if (result.bytes > 0) std::memcpy(told.data() + sizeof verdict, result.data, result.bytes);
  }
  local_->broadcast(told.data(), told.size(), 0);
  std::memcpy(&verdict, told.data(), sizeof verdict);
  if (verdict.different >= 0) throw_different(number_, rank_, intent_, verdict.different, verdict.intent);
  if (result.bytes > 0 && !leads()) std::memcpy(result.data, told.data() + sizeof verdict, result.bytes);
}

void SpanningGroup::barrier() {
  call(intent_of(CallKind::barrier, 0), [&] {
    local_->barrier();
    greet();
    agree();
  });
}

}  // namespace lockstep::collective
