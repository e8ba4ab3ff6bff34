#include "train/resource_pool.h"

#include <lockstep/error.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "sys/node.h"
#include "sys/sockets.h"

namespace lockstep::train {
namespace {

using driver::Amount;
using driver::NodeOffer;

Amount sum_of(const std::vector<NodeOffer>& nodes, const std::string& name) {
  Amount sum = 0;
  for (const NodeOffer& node : nodes) {
    if (const auto found = node.amounts.find(name); found != node.amounts.end()) sum += found->second;
    if (name != "GPU") continue;
    for (const auto& gpu : node.gpus) sum += gpu.free;
  }
  return sum;
}

std::map<std::string, double> amounts_of(const std::vector<NodeOffer>& nodes) {
  std::map<std::string, double> amounts{{"GPU", driver::to_double(sum_of(nodes, "GPU"))}};
  for (const NodeOffer& node : nodes)
    for (const auto& [name, amount] : node.amounts) amounts[name] += driver::to_double(amount);
  return amounts;
}

/// Reduces the free cores to the share of one of the runs that did not ask for cores.
void share_cores(std::vector<NodeOffer>& left, const std::list<Holding>& holdings, std::uint64_t asking) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    int runs = 1;
    for (const Holding& each : holdings)
      if (each.id != asking && i < each.sharers.size() && each.sharers[i] > 0) ++runs;
    if (const auto cpus = left[i].amounts.find("CPU"); cpus != left[i].amounts.end()) cpus->second /= runs;
  }
}

/// Whether a callback of the run that uses the holding started the run of the request.
bool is_within(const ResourcePool::Request& request, const Holding& holding) {
  return holding.driven != 0 && std::ranges::find(request.within, holding.driven) != request.within.end();
}

std::string runs_text(const std::vector<std::string>& runs) {
  std::vector<std::string> quoted;
  for (const auto& run : runs) quoted.push_back(in_quotes(run));
  return (runs.size() == 1 ? "run " : "runs ") + joined(quoted, ", ");
}

NodeOffer this_node(const std::map<std::string, double>& declared) {
  NodeOffer node{sys::host_name(), sys::kLoopback, {}, {}};
  for (const auto& [name, amount] : sys::node_resources(declared))
    if (name != "GPU") node.amounts[name] = driver::to_amount(amount);
  for (std::string& id : sys::gpu_ids(declared)) node.gpus.push_back({std::move(id), driver::kWhole});
  return node;
}

/// The arguments of declare_resources().
struct Declared {
  std::mutex mutex;
  std::map<std::string, double> amounts;
};
Declared& declared_here() {
  static auto* declared = new Declared;
  return *declared;
}

}  // namespace

// ---------------------------------------------------------------- pure

Holding holding_of(const ScalingConfig& scaling, const driver::Placement& placement,
                   const std::vector<NodeOffer>& nodes) {
  Holding holding;
  holding.workers = placement.world_size();
  holding.held.resize(nodes.size());
  holding.sharers.resize(nodes.size());
  const auto asked = driver::asked_per_worker(scaling);
  for (const auto& place : placement.ranks) {
    const auto at = static_cast<std::size_t>(place.node);
    NodeOffer& held = holding.held[at];
    for (const auto& [name, each] : asked)
      if (name != "GPU") held.amounts[name] += each;
    for (const auto& id : place.gpus) {
      auto found = std::ranges::find(held.gpus, id, &driver::GpuOffer::id);
      if (found == held.gpus.end()) found = held.gpus.insert(found, {id, 0});
      found->free += std::min(asked.at("GPU"), driver::kWhole);
    }
    if (!driver::asks_for_cpus(asked)) ++holding.sharers[at];
  }
  return holding;
}

std::vector<NodeOffer> left_of(std::vector<NodeOffer> nodes, const std::list<Holding>& holdings) {
  for (const Holding& holding : holdings) {
    for (std::size_t i = 0; i < std::min(nodes.size(), holding.held.size()); ++i) {
      NodeOffer& node = nodes[i];
      for (const auto& [name, amount] : holding.held[i].amounts)
        if (const auto found = node.amounts.find(name); found != node.amounts.end())
          found->second = std::max<Amount>(0, found->second - amount);
      for (const auto& gpu : holding.held[i].gpus)
        if (const auto found = std::ranges::find(node.gpus, gpu.id, &driver::GpuOffer::id); found != node.gpus.end())
          found->free = std::max<Amount>(0, found->free - gpu.free);
    }
  }
  return nodes;
}

// ---------------------------------------------------------------- leases

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

std::vector<NodeOffer> Lease::offers() const {
  if (pool_ == nullptr) throw EngineError("[resources] the resources of the run were released");
  return pool_->offers_of(id_);
}

driver::Placement Lease::place(const ScalingConfig& scaling, const std::map<std::string, std::string>& env,
                               const std::function<void(std::vector<NodeOffer>&)>& mark_lost) const {
  auto held = offers();
  mark_lost(held);
  const bool is_elastic = scaling.num_workers.is_elastic();
  const bool has_lost = std::ranges::any_of(
      held, [](const NodeOffer& node) { return node.lost && (!node.amounts.empty() || !node.gpus.empty()); });
  // After a loss, other nodes may have more room than those that are left.
  if (auto placement = is_elastic ? std::nullopt : driver::place_if_it_fits(scaling, held, env);
      placement && !(has_lost && placement->crowded))
    return *std::move(placement);
  auto nodes = pool_->nodes_();
  mark_lost(nodes);
  driver::place(scaling, nodes, env);
  pool_->move(id_, scaling, nodes);
  held = offers();
  mark_lost(held);
  return driver::place(scaling, held, env);
}

int Lease::room(const ScalingConfig& scaling, const std::function<void(std::vector<NodeOffer>&)>& mark_lost) const {
  if (pool_ == nullptr) return 0;
  auto nodes = pool_->nodes_();
  mark_lost(nodes);
  return pool_->room(id_, scaling, nodes);
}

void Lease::set_driven(std::uint64_t run) const {
  if (pool_ != nullptr) pool_->set_driven(id_, run);
}

void Lease::release() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->release(id_);
}

std::vector<NodeOffer> ResourcePool::offers_of(std::uint64_t id) const {
  auto nodes = nodes_();
  const std::lock_guard lock(mutex_);
  auto left = left_of(nodes, holdings_);
  share_cores(left, holdings_, id);
  const auto mine = std::ranges::find(holdings_, id, &Holding::id);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    auto amounts = std::move(nodes[i].amounts);
    nodes[i].amounts.clear();
    nodes[i].gpus.clear();
    if (mine == holdings_.end() || i >= mine->held.size()) continue;
    nodes[i].gpus = mine->held[i].gpus;
    nodes[i].amounts = mine->held[i].amounts;
    if (mine->sharers[i] > 0) nodes[i].amounts["CPU"] = left[i].amounts["CPU"];
    // Exclude nodes on which it holds nothing.
    nodes[i].lost = nodes[i].lost || (nodes[i].amounts.empty() && nodes[i].gpus.empty());
  }
  return nodes;
}

void ResourcePool::release(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (owner_ != ::getpid()) return;
  std::erase_if(holdings_, [&](const Holding& each) { return each.id == id; });
  wake_all();
}

void ResourcePool::set_driven(std::uint64_t id, std::uint64_t run) {
  const std::lock_guard lock(mutex_);
  if (const auto mine = std::ranges::find(holdings_, id, &Holding::id); mine != holdings_.end()) mine->driven = run;
}

void ResourcePool::nodes_changed() {
  const std::lock_guard lock(mutex_);
  if (owner_ == ::getpid()) wake_all();
}

void ResourcePool::wake_all() const {
  for (const Ticket& ticket : queue_) eventfd_write(ticket.wake.get(), 1);
}

/// A fork has copies of its parent's holdings; drop them.
void ResourcePool::forget_parent() {
  if (std::exchange(owner_, ::getpid()) == ::getpid()) return;
  holdings_.clear();
  queue_.clear();
}

std::optional<driver::Placement> ResourcePool::fit(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes,
                                                   const std::list<Holding>& holdings) const {
  auto left = left_of(nodes, holdings);
  if (!driver::asks_for_cpus(driver::asked_per_worker(scaling))) share_cores(left, holdings, 0);
  return driver::place_if_it_fits(scaling, left, {});
}

void ResourcePool::limit(const Holding& mine, ScalingConfig& scaling) const {
  auto& [least, most] = scaling.num_workers;
  if (!queue_.empty() && driver::asks_for_anything(driver::asked_per_worker(scaling)))
    most = std::clamp(mine.workers, least, most);
}

int ResourcePool::room(std::uint64_t id, ScalingConfig scaling, const std::vector<NodeOffer>& nodes) const {
  const std::lock_guard lock(mutex_);
  auto others = holdings_;
  const auto mine = std::ranges::find(others, id, &Holding::id);
  if (mine == others.end()) return 0;
  limit(*mine, scaling);
  others.erase(mine);
  const auto placement = fit(scaling, nodes, others);
  return placement ? placement->world_size() : 0;
}

bool ResourcePool::try_hold(const Request& request, const std::vector<NodeOffer>& nodes) {
  const auto placement = fit(request.scaling, nodes, holdings_);
  if (!placement) return false;
  Holding& holding = holdings_.emplace_back(holding_of(request.scaling, *placement, nodes));
  holding.id = next_id_++;
  holding.run = request.run;
  holding.driven = request.driven;
  return true;
}

std::optional<Lease> ResourcePool::try_take(const Request& request, const std::vector<NodeOffer>& nodes) {
  return try_hold(request, nodes) ? std::optional<Lease>(std::in_place, *this, holdings_.back().id) : std::nullopt;
}

void ResourcePool::move(std::uint64_t id, const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes) {
  const std::lock_guard lock(mutex_);
  const auto mine = std::ranges::find(holdings_, id, &Holding::id);
  if (mine == holdings_.end()) return;
  const Holding before = std::move(*mine);
  holdings_.erase(mine);
  Request request;
  request.run = before.run;
  request.scaling = scaling;
  request.driven = before.driven;
  limit(before, request.scaling);
  const bool is_held = try_hold(request, nodes);
  const std::string text = is_held ? "" : wait_text(request, nodes);
  if (!is_held) holdings_.push_back(before);
  holdings_.back().id = id;
  wake_all();
  if (!is_held)
    throw EngineError("[resources] run " + in_quotes(before.run) + " needs " + text + ", after nodes were lost");
}

/// "2 GPU, held by run "a"", or "its turn, behind run "b"".
std::string ResourcePool::wait_text(const Request& request, const std::vector<NodeOffer>& nodes) const {
  const auto left = left_of(nodes, holdings_);
  std::vector<std::string> needs, runs;
  if (driver::place_if_it_fits(request.scaling, left, {})) {
    for (const Ticket& ticket : queue_) runs.push_back(ticket.run);
    return "its turn, behind " + runs_text(runs);
  }
  for (const auto& [name, each] : driver::asked_per_worker(request.scaling)) {
    const Amount needed = each * request.scaling.num_workers.least;
    // There may be enough GPUs in sum, but only in fractions.
    if (each == 0 || (sum_of(left, name) >= needed && name != "GPU")) continue;
    needs.push_back(driver::amount_text(needed) + " " + name);
    for (const Holding& holding : holdings_)
      if (sum_of(holding.held, name) > 0 && std::ranges::find(runs, holding.run) == runs.end())
        runs.push_back(holding.run);
  }
  if (runs.empty())  // there is enough of everything, but not on the same nodes
    for (const Holding& holding : holdings_) runs.push_back(holding.run);
  return (needs.empty() ? "room on the nodes" : joined(needs, " and ")) + ", held by " + runs_text(runs);
}

void ResourcePool::check_not_own(const Request& request, const std::vector<NodeOffer>& nodes) const {
  std::list<Holding> own;
  std::vector<std::string> runs;
  for (const Holding& each : holdings_)
    if (is_within(request, each)) {
      own.push_back(each);
      runs.push_back(each.run);
    }
  if (!own.empty() && !driver::place_if_it_fits(request.scaling, left_of(nodes, own), {}))
    throw ConfigError("[resources] run " + in_quotes(request.run) + " needs " + wait_text(request, nodes) +
                      ", but was started by a callback of " + runs_text(runs) +
                      ", so it would wait forever; start it later, or ask for less");
}

/// A place in the queue. The pool's mutex must be held when it is made, and free when it is destroyed.
class ResourcePool::Place {
 public:
  Place(ResourcePool& pool, const std::string& run)
      : pool_(pool), ticket_(pool.queue_.insert(pool.queue_.end(), {run, sys::event_descriptor()})) {}
  ~Place() {
    const std::lock_guard lock(pool_.mutex_);
    pool_.queue_.erase(ticket_);
    pool_.wake_all();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  int fd() const { return ticket_->wake.get(); }
  bool is_first() const { return ticket_ == pool_.queue_.begin(); }

 private:
  ResourcePool& pool_;
  std::list<Ticket>::iterator ticket_;
};

std::optional<Lease> ResourcePool::acquire(const Request& request) {
  auto nodes = nodes_();
  driver::place(request.scaling, nodes, {});
  std::unique_lock lock(mutex_);
  forget_parent();
  const auto own = [&](const Holding& each) { return is_within(request, each); };
  // May overtake the queue: a run in it may wait for a run whose callback waits for this one, and waiting behind it
  // would never end.
  const bool may_pass =
      !driver::asks_for_anything(driver::asked_per_worker(request.scaling)) || std::ranges::any_of(holdings_, own);
  if (queue_.empty() || may_pass)
    if (auto lease = try_take(request, nodes)) return lease;
  check_not_own(request, nodes);
  const std::string text = wait_text(request, nodes);
  if (!request.wait)
    throw EngineError("[resources] run " + in_quotes(request.run) + " needs " + text +
                      "; try again later, or leave out wait_for_resources=False to wait");
  const Place place(*this, request.run);
  lock.unlock();
  std::vector<pollfd> items{{place.fd(), POLLIN, 0}};
  for (const int fd : request.interrupts) items.push_back({fd, POLLIN, 0});
  if (request.say) request.say("run " + in_quotes(request.run) + " waits for " + text);
  for (;;) {
    if (::poll(items.data(), items.size(), -1) < 0) continue;  // a signal
    if (std::any_of(items.begin() + 1, items.end(), [](const pollfd& item) { return item.revents != 0; }))
      return std::nullopt;
    eventfd_t count = 0;
    eventfd_read(place.fd(), &count);
    nodes = nodes_();
    driver::place(request.scaling, nodes, {});
    const std::lock_guard again(mutex_);
    if (may_pass || place.is_first())
      if (auto lease = try_take(request, nodes)) return lease;
  }
}

std::map<std::string, double> ResourcePool::total() const { return amounts_of(nodes_()); }

std::map<std::string, double> ResourcePool::available() const {
  const auto nodes = nodes_();
  const std::lock_guard lock(mutex_);
  if (owner_ != ::getpid()) return amounts_of(nodes);
  auto left = left_of(nodes, holdings_);
  for (const Holding& holding : holdings_)
    for (std::size_t i = 0; i < std::min(left.size(), holding.sharers.size()); ++i)
      if (const auto cpus = left[i].amounts.find("CPU"); cpus != left[i].amounts.end())
        cpus->second = std::max<Amount>(0, cpus->second - holding.sharers[i] * driver::kWhole);
  return amounts_of(left);
}

int ResourcePool::leases() const {
  const std::lock_guard lock(mutex_);
  return owner_ == ::getpid() ? static_cast<int>(holdings_.size()) : 0;
}

int ResourcePool::waiting() const {
  const std::lock_guard lock(mutex_);
  return owner_ == ::getpid() ? static_cast<int>(queue_.size()) : 0;
}

// ---------------------------------------------------------------- of this process

ResourcePool& process_resources() {
  static auto* pool = new ResourcePool([]() -> std::vector<NodeOffer> {
    auto declared = sys::declared_resources();
    Declared& told = declared_here();
    const std::lock_guard lock(told.mutex);
    for (const auto& [name, amount] : told.amounts) declared[name] = amount;
    return {this_node(declared)};
  });
  return *pool;
}

void declare_resources(const std::map<std::string, double>& declared) {
  for (const auto& [name, amount] : declared)
    if (const std::string must_be = sys::amount_must_be(name, amount); !must_be.empty())
      throw ConfigError("[resources] the amount of " + in_quotes(name) + " is " + std::to_string(amount) +
                        "; it must be " + must_be);
  {
    const std::lock_guard lock(declared_here().mutex);
    declared_here().amounts = declared;
  }
  process_resources().nodes_changed();
}

}  // namespace lockstep::train
