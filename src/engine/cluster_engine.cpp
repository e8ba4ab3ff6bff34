#include "engine/cluster_engine.h"

#include <lockstep/error.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/secret_files.h"
#include "sys/node.h"
#include "sys/secret.h"
#include "sys/sockets.h"

namespace lockstep::engine {
namespace {

constexpr int kJoinPort = 29400;
/// Without a number, an engine without a launcher waits for one other node.
constexpr int kJoinNodes = 2;
constexpr const char* kEveryAddress = "0.0.0.0";
constexpr auto kListenWithin = 10s;
/// How often launched commands are looked at.
constexpr auto kLook = 100ms;
/// How often the launcher is asked for a node in place of a lost one.
constexpr auto kAskAgain = 500ms;
/// If the nodes that have joined are enough, start() waits for the others while one joins at least this often.
constexpr auto kLateNodes = 5s;

bool is_loopback(const std::string& address) { return address.starts_with("127."); }

/// Waits until the descriptor is readable, or one of `interrupts` is. Returns which: 0 is the first; nothing at the
/// time `until`.
std::optional<std::size_t> await_one(int fd, const std::vector<int>& interrupts, Instant until) {
  std::vector<pollfd> items{{fd, POLLIN, 0}};
  for (const int each : interrupts) items.push_back({each, POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
  if (::poll(items.data(), items.size(), static_cast<int>(std::max<long long>(left, 0))) <= 0) return std::nullopt;
  for (std::size_t i = items.size(); i-- > 0;)  // interrupts first
    if (items[i].revents != 0) return i;
  return std::nullopt;
}

std::string counted_nodes(std::size_t count) { return std::to_string(count) + (count == 1 ? " node" : " nodes"); }

}  // namespace

ClusterEngine::ClusterEngine(EngineConfig config, std::unique_ptr<Launcher> launcher)
    : config_(std::move(config)), launcher_(std::move(launcher)) {}

ClusterEngine::~ClusterEngine() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

// ---------------------------------------------------------------- the start

std::vector<AgentHandle> ClusterEngine::start(const AgentSpec& spec) {
  owner_ = ::getpid();
  try {
    choose_nodes();
    take_secret();
    AgentHandle head = std::move(local_.start({}).front());
    link_ = {};
    auto [ours, theirs] = sys::packet_pair();
    const std::string word = head_link::kWord;
    const std::array fds{theirs.get()};
    sys::send_with_fds(head.socket.get(), {reinterpret_cast<const std::uint8_t*>(word.data()), word.size()}, fds);
    theirs.reset();
    link_ = std::move(ours);
    listen();
    head.works = nodes_.head_works;
    if (nodes_.head_cpus) head.resources["CPU"] = *nodes_.head_cpus;
    for (const auto& node : nodes_.others) launch(node, "");
    sys::Descriptor control = std::move(head.socket);
    head_ = std::move(head);
    wait_for_nodes(spec);
    std::vector<AgentHandle> result;
    news_.clear();
    offer_head();
    result.push_back(std::move(news_.front()));
    news_.clear();
    result.front().socket = std::move(control);
    for (const auto& [index, notice] : members_) result.push_back(handle_of(notice));
    return result;
  } catch (...) {
    stop();
    throw;
  }
}

void ClusterEngine::choose_nodes() {
  nodes_ = launcher_ ? launcher_->nodes() : LaunchNodes{};
  nodes_.head_works = config_.head_works.value_or(nodes_.head_works);
  names_.clear();
  for (const auto& node : nodes_.others) names_.push_back(node.name);
  if (!config_.network_interface.empty() && !sys::interface_addresses().contains(config_.network_interface))
    throw ConfigError("[EngineConfig] network_interface is " + in_quotes(config_.network_interface) +
                      ", which this machine does not have, or which has no IPv4 address");
}

void ClusterEngine::take_secret() {
  if (launcher_) {
    secret_ = sys::make_secret();
    return;
  }
  std::error_code ignored;
  if (!config_.secret_file.empty() && std::filesystem::exists(config_.secret_file, ignored)) {
    secret_ = sys::read_secret_file(config_.secret_file);
    return;
  }
  secret_ = sys::make_secret();
  const std::string path = config_.secret_file.empty() ? new_secret_path() : config_.secret_file;
  sys::write_secret_file(path, secret_);
  made_file_ = path;
  remove_at_exit(path);
}

void ClusterEngine::listen() {
  port_ = config_.port.value_or(launcher_ ? 0 : kJoinPort);
  send_settings();
  const Instant until = now() + kListenWithin;
  for (;;) {
    if (!await_one(link_.get(), {}, until)) {
      if (now() < until) continue;  // a signal
      throw EngineError(who() + "the head agent did not answer");
    }
    const auto notice = head_link::receive_notice(link_.get());
    if (!notice) throw EngineError(who() + "the head agent has ended; its own message, if any, is on standard error");
    if (const auto* failed = std::get_if<head_link::Failed>(&*notice)) throw EngineError(failed->why);
    if (const auto* listening = std::get_if<head_link::Listening>(&*notice)) {
      port_ = listening->port;
      return;
    }
  }
}

void ClusterEngine::send_settings() {
  head_link::Listen settings;
  settings.address =
      config_.network_interface.empty() ? kEveryAddress : sys::interface_addresses().at(config_.network_interface);
  settings.port = port_;
  settings.secret = secret_;
  settings.node_timeout = config_.node_timeout;
  settings.names = names_;
  head_link::send(link_.get(), settings);
}

void ClusterEngine::launch(const LaunchNodes::Node& node, const std::string& instead_of) {
  JoinCommand command;
  const auto patience = std::chrono::ceil<std::chrono::seconds>(config_.start_timeout).count();
  const std::string host =
      config_.network_interface.empty() ? sys::node_ip() : sys::interface_addresses().at(config_.network_interface);
  command.argv = {find_agent().string(),
                  "--join",
                  host + ":" + std::to_string(port_),
                  "--secret-stdin",
                  "--until-stdin-ends",
                  "--name",
                  node.name,
                  "--wait",
                  std::to_string(patience)};
  if (node.cpus) {
    command.argv.emplace_back("--slots");
    command.argv.push_back(std::to_string(std::max(1, static_cast<int>(*node.cpus))));
  }
  command.secret = sys::secret_text(secret_);
  launched_.insert_or_assign(node.name, Launched{node, instead_of});
  launcher_->launch(node, command);
}

/// The number of other nodes.
std::size_t ClusterEngine::wanted() const {
  if (launcher_) return nodes_.others.size();
  const int all = config_.nodes.value_or(nodes_.head_works ? kJoinNodes : kJoinNodes - 1);
  return static_cast<std::size_t>(std::max(all - (nodes_.head_works ? 1 : 0), 0));
}

std::string ClusterEngine::invitation() const {
  const std::string file = made_file_.empty() ? config_.secret_file : made_file_;
  const std::string host =
      config_.network_interface.empty() ? sys::node_ip() : sys::interface_addresses().at(config_.network_interface);
  return "lockstep agent --join " + host + ":" + std::to_string(port_) + " --secret-file " + file;
}

std::string ClusterEngine::missing_text(const std::string& why) const {
  std::vector<std::string> here, missing;
  for (const auto& [index, member] : members_) here.push_back(member.name);
  for (const auto& name : names_)
    if (std::ranges::find(here, name) == here.end()) missing.push_back(name);
  const std::size_t count = wanted() - std::min(wanted(), members_.size());
  std::string text = who() + counted_nodes(count) + " of " + std::to_string(wanted()) + " did not join ";
  text += why;
  if (!missing.empty()) text += ": " + lockstep::joined(missing, ", ");
  if (!here.empty()) text += "; there are " + lockstep::joined(here, ", ");
  if (launcher_) return text + "; raise EngineConfig(start_timeout=...) if they are slow to start";
  return text + ". Run on each node: " + invitation() +
         " (the file is made for this run; copy it there with mode 0600), or lower EngineConfig(nodes=...)";
}

void ClusterEngine::wait_for_nodes(const AgentSpec& spec) {
  if (!launcher_ && members_.size() < wanted() && spec.say)
    spec.say("waiting for " + counted_nodes(wanted()) + "; run there: " + invitation());
  const Instant until = now() + ticks(config_.start_timeout);
  Instant last = now();
  for (std::size_t before = members_.size(); members_.size() < wanted(); before = members_.size()) {
    if (now() >= std::min(until, last + kLateNodes) && is_enough(spec)) {
      if (spec.say)
        spec.say("starting without " + counted_nodes(wanted() - members_.size()) + "; others may join later");
      return;
    }
    if (now() >= until) {
      char text[64];
      std::snprintf(text, sizeof text, "within %.4g s", Seconds(config_.start_timeout).count());
      throw EngineError(missing_text(text));
    }
    if (const auto which = await_one(link_.get(), spec.interrupts, std::min(until, now() + kLook)); which && *which > 0)
      throw StartInterrupted(who() + "interrupted while nodes were joining");
    take_notices(&spec);
    if (members_.size() > before) last = now();
    if (const auto gone = local_.lost(); !gone.empty()) throw EngineError(who() + gone.front().why);
    if (!launcher_) continue;
    for (const auto& ended : launcher_->ended()) {
      if (!launched_.contains(ended.node)) continue;
      const std::string why =
          who() + "the agent on node " + in_quotes(ended.node) + " ended before it joined: " + ended.why;
      if (!spec.enough) throw EngineError(why);
      log_warning(why);
      launched_.erase(ended.node);
      to_replace_.insert(ended.node);
    }
  }
}

bool ClusterEngine::is_enough(const AgentSpec& spec) const {
  if (!spec.enough) return false;
  std::vector<AgentHandle> here;
  here.push_back(head_offer());
  for (const auto& [index, notice] : members_) here.push_back(handle_of(notice));
  return spec.enough(here);
}

// ---------------------------------------------------------------- what the head agent says

void ClusterEngine::take_notices(const AgentSpec* spec) {
  while (link_) {
    pollfd item{link_.get(), POLLIN, 0};
    if (::poll(&item, 1, 0) != 1) return;
    const auto notice = head_link::receive_notice(link_.get());
    if (!notice) return link_.reset();  // the head agent has ended, which is noticed elsewhere
    if (const auto* joined = std::get_if<head_link::Joined>(&*notice)) take(*joined);
    if (const auto* gone = std::get_if<head_link::Lost>(&*notice)) {
      lost_.push_back({gone->node, gone->why});
      std::erase_if(news_, [&](const AgentHandle& each) { return each.node == gone->node; });
      const auto member = members_.find(gone->node);
      if (member == members_.end()) continue;
      if (launcher_) to_replace_.insert(member->second.name);
      members_.erase(member);
    }
    if (const auto* away = std::get_if<head_link::TurnedAway>(&*notice)) {
      const std::string text = "node " + in_quotes(away->name) + " was not let in: " + away->why;
      if (spec != nullptr && launcher_) throw EngineError(who() + text);
      if (spec != nullptr && spec->say)
        spec->say(text);
      else
        log_warning(text);
    }
  }
}

void ClusterEngine::take(const head_link::Joined& notice) {
  members_.insert_or_assign(notice.node, notice);
  launched_.erase(notice.name);
  if (head_address() == told_head_address_) return news_.push_back(handle_of(notice));
  offer_head();
  for (const auto& [index, member] : members_) news_.push_back(handle_of(member));
}

AgentHandle ClusterEngine::handle_of(const head_link::Joined& notice) const {
  AgentHandle handle;
  handle.node = notice.node;
  handle.name = notice.name;
  handle.address = address_of(notice);
  handle.resources = notice.resources;
  handle.gpu_ids = notice.gpu_ids;
  return handle;
}

void ClusterEngine::offer_head() {
  told_head_address_ = head_address();
  news_.push_back(head_offer());
}

/// The head without its socket.
AgentHandle ClusterEngine::head_offer() const {
  AgentHandle head;
  head.name = head_.name;
  head.address = head_address();
  head.resources = head_.resources;
  head.gpu_ids = head_.gpu_ids;
  head.works = head_.works;
  return head;
}

/// A node that joined over the loopback is on the head's machine.
std::string ClusterEngine::address_of(const head_link::Joined& notice) const {
  const auto own = notice.interfaces.find(config_.network_interface);
  if (own != notice.interfaces.end()) return own->second;
  return is_loopback(notice.address) ? head_address() : notice.address;
}

/// By which the first other node reaches the head.
std::string ClusterEngine::head_address() const {
  if (!config_.network_interface.empty()) return sys::interface_addresses().at(config_.network_interface);
  for (const auto& [index, notice] : members_)
    if (!is_loopback(notice.head_address)) return notice.head_address;
  return sys::kLoopback;
}

// ---------------------------------------------------------------- later

std::vector<LostNode> ClusterEngine::lost() {
  if (owner_ != ::getpid()) return {};
  take_notices(nullptr);
  auto result = std::exchange(lost_, {});
  for (auto& head : local_.lost()) result.push_back(std::move(head));
  return result;
}

std::vector<AgentHandle> ClusterEngine::joined() {
  if (owner_ != ::getpid() || !link_) return {};
  take_notices(nullptr);
  if (launcher_) replace_lost();
  return std::exchange(news_, {});
}

void ClusterEngine::replace_lost() {
  for (const auto& ended : launcher_->ended()) {
    const auto found = launched_.find(ended.node);
    if (found == launched_.end()) continue;
    log_warning(who() + "the agent on node " + in_quotes(ended.node) + " ended before it joined: " + ended.why);
    to_replace_.insert(found->second.instead_of.empty() ? ended.node : found->second.instead_of);
    launched_.erase(found);
  }
  if (to_replace_.empty() || now() - asked_ < kAskAgain) return;
  asked_ = now();
  const std::string name = *to_replace_.begin();
  try {
    const auto node = launcher_->replace(name);
    if (!node) return;
    std::ranges::replace(names_, name, node->name);
    send_settings();
    to_replace_.erase(name);
    launch(*node, node->name);
  } catch (const EngineError& error) {
    log_warning(error.what());
  }
}

void ClusterEngine::stop() {
  if (owner_ != ::getpid()) return;
  link_.reset();  // the other nodes' agents end
  if (launcher_) launcher_->stop();
  local_.stop();
  if (!made_file_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(std::exchange(made_file_, {}), ignored);
  }
  members_.clear();
  launched_.clear();
  to_replace_.clear();
  lost_.clear();
  news_.clear();
}

}  // namespace lockstep::engine
