#pragma once

#include <lockstep/config.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/placement.h"
#include "sys/descriptor.h"

namespace lockstep::train {

/// The resources that one run holds.
struct Holding {
  std::uint64_t id = 0;
  std::string run;                      ///< its name, for messages
  std::uint64_t driven = 0;             ///< DrivenRun::id(); 0: no run uses it now, the workers are only kept
  std::vector<driver::NodeOffer> held;  ///< by node: amounts it asked for, and GPUs (`free` is its part)
  std::vector<int> sharers;             ///< by node: workers that asked for no CPU and share cores
  int workers = 0;
};

/// The resources that `placement` uses.
Holding holding_of(const ScalingConfig& scaling, const driver::Placement& placement,
                   const std::vector<driver::NodeOffer>& nodes);

/// The resources of `nodes` that are free.
std::vector<driver::NodeOffer> left_of(std::vector<driver::NodeOffer> nodes, const std::list<Holding>& holdings);

class ResourcePool;

/// A run's part of the pool. The destructor returns it.
class Lease {
 public:
  Lease() = default;
  Lease(ResourcePool& pool, std::uint64_t id) : pool_(&pool), id_(id) {}
  Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  explicit operator bool() const { return pool_ != nullptr; }
  /// The resources that the run may use: those it holds, and if it did not ask for CPUs, its current share of the free
  /// cores. Throws EngineError if it was released.
  std::vector<driver::NodeOffer> offers() const;
  /// Where the workers of the next attempt run, within the lease. `mark_lost` marks lost nodes; what the run held there
  /// is taken from other nodes. An elastic run takes all that it can use, but no more than it holds while other runs
  /// wait for resources. Throws ConfigError if the nodes do not have that much at all, and EngineError if other runs
  /// hold it.
  driver::Placement place(const ScalingConfig& scaling, const std::map<std::string, std::string>& env,
                          const std::function<void(std::vector<driver::NodeOffer>&)>& mark_lost) const;
  /// The number of workers that place() would place now; 0 if they do not fit.
  int room(const ScalingConfig& scaling, const std::function<void(std::vector<driver::NodeOffer>&)>& mark_lost) const;
  /// Says which run (DrivenRun::id()) uses it now; 0: none.
  void set_driven(std::uint64_t run) const;
  void release();

 private:
  ResourcePool* pool_ = nullptr;
  std::uint64_t id_ = 0;
};

/// Leases cores, GPUs and named resources of the process's nodes to its runs. What one run asked for is not given to
/// another at the same time. A run that asks for nothing never waits: it shares the free cores evenly with other such
/// runs.
///
/// Any thread may call it. A forked process starts with an empty pool.
class ResourcePool {
 public:
  using Nodes = std::function<std::vector<driver::NodeOffer>()>;

  /// `nodes` returns all resources; it is called for every lease.
  explicit ResourcePool(Nodes nodes) : nodes_(std::move(nodes)) {}

  struct Request {
    std::string run;  ///< name
    ScalingConfig scaling;
    std::uint64_t driven = 0;                     ///< DrivenRun::id()
    std::vector<std::uint64_t> within;            ///< the runs whose callbacks started it; they may wait for its end
    bool wait = true;                             ///< false: throws EngineError if others hold what it needs
    std::vector<int> interrupts;                  ///< descriptors; the wait ends when one is readable
    std::function<void(const std::string&)> say;  ///< called once with what it waits for and which runs hold it
  };

  /// Throws ConfigError if the nodes do not have that much at all.
  void check(const ScalingConfig& scaling) const { driver::place(scaling, nodes_(), {}); }
  /// Waits until the resources are free; first come, first served. Returns nothing if the wait was interrupted. Throws
  /// ConfigError if the nodes do not have that much at all, or if callbacks of the runs that hold the resources started
  /// this run.
  std::optional<Lease> acquire(const Request& request);
  /// Lets the runs that wait look again, because the nodes have changed.
  void nodes_changed();

  /// All resources by name, including "GPU".
  std::map<std::string, double> total() const;
  /// The free resources. A worker that asked for no CPU counts as using one.
  std::map<std::string, double> available() const;
  /// The number of runs that hold resources.
  int leases() const;
  /// The number of runs that wait for resources.
  int waiting() const;

 private:
  friend class Lease;
  struct Ticket {
    std::string run;
    sys::Descriptor wake;
  };
  class Place;

  std::vector<driver::NodeOffer> offers_of(std::uint64_t id) const;
  void move(std::uint64_t id, const ScalingConfig& scaling, const std::vector<driver::NodeOffer>& nodes);
  int room(std::uint64_t id, ScalingConfig scaling, const std::vector<driver::NodeOffer>& nodes) const;
  /// The run takes no more than it holds while others wait for resources.
  void limit(const Holding& mine, ScalingConfig& scaling) const;
  void release(std::uint64_t id);
  void set_driven(std::uint64_t id, std::uint64_t run);
  void forget_parent();
  /// Where the workers would run, besides `holdings`.
  std::optional<driver::Placement> fit(const ScalingConfig& scaling, const std::vector<driver::NodeOffer>& nodes,
                                       const std::list<Holding>& holdings) const;
  /// Adds what the request asks for to the end of `holdings_`, if that is free.
  bool try_hold(const Request& request, const std::vector<driver::NodeOffer>& nodes);
  std::optional<Lease> try_take(const Request& request, const std::vector<driver::NodeOffer>& nodes);
  std::string wait_text(const Request& request, const std::vector<driver::NodeOffer>& nodes) const;
  void check_not_own(const Request& request, const std::vector<driver::NodeOffer>& nodes) const;
  void wake_all() const;

  Nodes nodes_;
  mutable std::mutex mutex_;  // guards all below
  std::list<Holding> holdings_;
  std::list<Ticket> queue_;
  std::uint64_t next_id_ = 1;
  int owner_ = 0;
};

/// The pool of this process: the resources of the machine, and those of LOCKSTEP_RESOURCES or declare_resources().
ResourcePool& process_resources();
/// Adds to the resources of the machine, or replaces them, until the next call. Throws ConfigError if an amount is
/// negative. Runs that wait for resources see the new amounts.
void declare_resources(const std::map<std::string, double>& declared);

}  // namespace lockstep::train
