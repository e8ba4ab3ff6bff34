#include "driver/placement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <lockstep/error.h>
#include <numeric>

#include "base/text.h"
#include "sys/node.h"

namespace lockstep::driver {
namespace {

/// More than any machine has, and small enough that sums do not overflow.
constexpr Amount kMost = 100'000'000'000'000'000;
constexpr int kUnlimited = std::numeric_limits<int>::max();

using Asked = std::map<std::string, Amount>;
/// Workers by node.
using Counts = std::vector<int>;

Amount times(Amount amount, int count) {
  Amount product = 0;
  const bool too_much = __builtin_mul_overflow(amount, static_cast<Amount>(count), &product);
  return too_much ? std::numeric_limits<Amount>::max() : product;
}

Amount sum_of_gpus(const NodeOffer& node) {
  return std::accumulate(node.gpus.begin(), node.gpus.end(), Amount{0},
                         [](Amount sum, const GpuOffer& gpu) { return sum + gpu.free; });
}

Amount amount_of(const NodeOffer& node, const std::string& name) {
  if (node.lost) return 0;
  if (name == "GPU") return sum_of_gpus(node);
  const auto found = node.amounts.find(name);
  return found == node.amounts.end() ? 0 : found->second;
}

int cores_of(const NodeOffer& node) {
  return static_cast<int>(std::clamp<Amount>(amount_of(node, "CPU") / kWhole, 1, kUnlimited));
}

/// A worker takes one or more whole GPUs, or a part of one.
bool takes_whole_gpus(Amount each) { return each >= kWhole; }

int workers_by_gpus(const NodeOffer& node, Amount each) {
  Amount count = 0;
  for (const GpuOffer& gpu : node.gpus) {
    if (takes_whole_gpus(each))
      count += gpu.free == kWhole ? 1 : 0;
    else
      count += gpu.free / each;
  }
  if (takes_whole_gpus(each)) count /= each / kWhole;
  return static_cast<int>(std::min<Amount>(count, kUnlimited));
}

/// How many workers a node has room for.
int room_of(const NodeOffer& node, const Asked& asked) {
  if (node.lost) return 0;
  Amount room = kUnlimited;
  for (const auto& [name, each] : asked) {
    if (each == 0) continue;
    room = std::min(room, name == "GPU" ? workers_by_gpus(node, each) : amount_of(node, name) / each);
  }
  return static_cast<int>(room);
}

// ---------------------------------------------------------------- how many workers each node gets

/// The nodes with the most room first.
std::vector<std::size_t> by_room(const Counts& room) {
  std::vector<std::size_t> order(room.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return room[a] > room[b]; });
  return order;
}

/// Gives `left` workers one by one to the node that has the fewest per `weight`. Returns how many found no room.
int even_out(int left, const Counts& room, const Counts& weight, Counts& counts) {
  for (; left > 0; --left) {
    std::optional<std::size_t> best;
    const auto load = [&](std::size_t i) { return static_cast<double>(counts[i]) / weight[i]; };
    for (std::size_t i = 0; i < room.size(); ++i)
      if (counts[i] < room[i] && (!best || load(i) < load(*best))) best = i;
    if (!best) return left;
    ++counts[*best];
  }
  return 0;
}

std::optional<Counts> strict_pack(int workers, const Counts& room, const Counts& comfortable) {
  Counts counts(room.size(), 0);
  for (const Counts& limit : {comfortable, room})
    for (std::size_t i = 0; i < room.size(); ++i)
      if (limit[i] >= workers) {
        counts[i] = workers;
        return counts;
      }
  return std::nullopt;
}

std::optional<Counts> pack(int workers, const Counts& room, const Counts& comfortable, const Counts& cores) {
  const bool fits_one = std::ranges::any_of(comfortable, [&](int each) { return each >= workers; });
  if (fits_one) return strict_pack(workers, room, comfortable);
  Counts counts(room.size(), 0);
  for (const std::size_t i : by_room(comfortable)) {
    counts[i] = std::min(workers, comfortable[i]);
    workers -= counts[i];
  }
  if (even_out(workers, room, cores, counts) > 0) return std::nullopt;
  return counts;
}

std::optional<Counts> spread(int workers, const Counts& room) {
  Counts counts(room.size(), 0);
  if (even_out(workers, room, Counts(room.size(), 1), counts) > 0) return std::nullopt;
  return counts;
}

/// How many workers have room.
int capacity(const std::string& strategy, const Counts& room) {
  std::int64_t sum = 0;
  for (const int each : room) {
    if (strategy == "STRICT_PACK")
      sum = std::max<std::int64_t>(sum, each);
    else
      sum += strategy == "STRICT_SPREAD" ? std::min(each, 1) : each;
  }
  return static_cast<int>(std::min<std::int64_t>(sum, kUnlimited));
}

std::optional<Counts> share_out(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes, const Asked& asked) {
  Counts room, comfortable, cores;
  for (const NodeOffer& node : nodes) {
    room.push_back(room_of(node, asked));
    cores.push_back(cores_of(node));
    comfortable.push_back(asks_for_cpus(asked) ? room.back() : std::min(room.back(), cores.back()));
  }
  int workers = scaling.num_workers.least;
  if (scaling.num_workers.is_elastic()) {
    const Counts& usable = asks_for_anything(asked) ? room : comfortable;
    const int fitting = capacity(scaling.placement_strategy, usable);
    if (fitting >= workers) {
      workers = std::min(fitting, scaling.num_workers.most);
      room = usable;
    }
  }
  if (scaling.placement_strategy == "STRICT_PACK") return strict_pack(workers, room, comfortable);
  if (scaling.placement_strategy == "SPREAD") return spread(workers, room);
  if (scaling.placement_strategy == "STRICT_SPREAD") {
    for (int& each : room) each = std::min(each, 1);
    return spread(workers, room);
  }
  return pack(workers, room, comfortable, cores);
}

// ---------------------------------------------------------------- what each worker gets

/// Takes a worker's GPUs from `gpus`, which has room for it.
std::vector<std::string> take_gpus(std::vector<GpuOffer>& gpus, Amount each) {
  std::vector<std::string> ids;
  const Amount part = std::min(each, kWhole);
  for (GpuOffer& gpu : gpus) {
    if (each == 0) break;
    if (gpu.free < part) continue;
    gpu.free -= part;
    each -= part;
    ids.push_back(gpu.id);
  }
  return ids;
}

int threads_of(const NodeOffer& node, int workers, const Asked& asked) {
  const Amount each = asks_for_cpus(asked) ? asked.at("CPU") / kWhole : cores_of(node) / workers;
  return static_cast<int>(std::clamp<Amount>(each, 1, kUnlimited));
}

/// The ranks of one node, after those that are placed already.
void place_on(const NodeOffer& node, int number, int count, const Asked& asked, bool set_threads,
              Placement& placement) {
  auto gpus = node.gpus;
  const auto gpu = asked.find("GPU");
  const int node_rank = placement.ranks.empty() ? 0 : placement.ranks.back().node_rank + 1;
  for (int local_rank = 0; local_rank < count; ++local_rank) {
    RankPlace place;
    place.rank = placement.world_size();
    place.node = number;
    place.local_rank = local_rank;
    place.local_world_size = count;
    place.node_rank = node_rank;
    place.address = node.address;
    place.gpus = take_gpus(gpus, gpu == asked.end() ? 0 : gpu->second);
    place.env["CUDA_VISIBLE_DEVICES"] = joined(place.gpus, ",");
    if (set_threads) place.env["OMP_NUM_THREADS"] = std::to_string(threads_of(node, count, asked));
    placement.ranks.push_back(std::move(place));
  }
}

std::string note_of(const std::vector<NodeOffer>& nodes, const Counts& counts) {
  int workers = 0, cores = 0;
  bool is_crowded = false;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (counts[i] == 0) continue;
    workers += counts[i];
    cores += cores_of(nodes[i]);
    is_crowded = is_crowded || counts[i] > cores_of(nodes[i]);
  }
  if (!is_crowded) return "";
  return std::to_string(workers) + " workers share " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
}

// ---------------------------------------------------------------- why it does not fit

std::string there(const std::vector<NodeOffer>& nodes) {
  return nodes.size() == 1 ? "this machine has " : "the " + std::to_string(nodes.size()) + " nodes have ";
}

[[noreturn]] void refuse_amount(int workers, Amount each, const std::string& name, const std::string& needed,
                                const std::string& found) {
  const std::string asked = " with " + amount_text(each) + " " + name;
  const std::string rest = needed + ", but " + found + "; ask for ";
  if (workers == 1) throw ConfigError("[resources] 1 worker" + asked + " needs " + rest + "less " + name);
  throw ConfigError("[resources] " + std::to_string(workers) + " workers" + asked + " each need " + rest +
                    "fewer workers or less " + name + " per worker");
}

[[noreturn]] void refuse(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes, const Asked& asked) {
  const int workers = scaling.num_workers.least;
  const int usable = static_cast<int>(std::ranges::count(nodes, false, &NodeOffer::lost));
  if (scaling.placement_strategy == "STRICT_SPREAD" && usable < workers)
    throw ConfigError(
        "[config] scaling.placement_strategy is STRICT_SPREAD; it may be PACK, SPREAD or STRICT_PACK " +
        (usable == 1 ? "on one machine: there is one node" : "here: there are " + std::to_string(usable) + " nodes") +
        " for " + std::to_string(workers) + " workers");
  for (const auto& [name, each] : asked) {
    Amount found = 0;
    for (const NodeOffer& node : nodes) found += amount_of(node, name);
    const Amount needed = times(each, workers);
    if (needed > found)
      refuse_amount(workers, each, name, amount_text(needed) + " " + name, there(nodes) + amount_text(found));
  }
  if (const auto gpu = asked.find("GPU");
      nodes.size() == 1 && gpu != asked.end() && gpu->second > 0 && workers_by_gpus(nodes[0], gpu->second) < workers) {
    const Amount each = gpu->second;
    const Amount needed =
        takes_whole_gpus(each) ? times(each / kWhole, workers) : (workers + kWhole / each - 1) / (kWhole / each);
    refuse_amount(workers, each, "GPU", std::to_string(needed) + " devices",
                  there(nodes) + std::to_string(nodes[0].gpus.size()));
  }
  std::vector<std::string> rooms;
  for (const NodeOffer& node : nodes)
    if (!node.lost)
      rooms.push_back(node.name + " has room for " + std::to_string(std::min(room_of(node, asked), workers)));
  throw ConfigError("[resources] " + std::to_string(workers) +
                    (workers == 1 ? " worker does not fit on " : " workers do not fit on ") + std::to_string(usable) +
                    (usable == 1 ? " node" : " nodes") + " with placement_strategy " + scaling.placement_strategy +
                    (rooms.empty() ? "" : ": " + joined(rooms, ", ")) +
                    "; ask for fewer workers or less per worker, or for another placement_strategy");
}

}  // namespace

Amount to_amount(double value) {
  if (!(value > 0)) return 0;
  const double parts = value * kWhole;
  return parts < static_cast<double>(kMost) ? std::max<Amount>(1, std::llround(parts)) : kMost;
}

double to_double(Amount amount) { return static_cast<double>(amount) / kWhole; }

std::string amount_text(Amount amount) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", to_double(amount));
  return text;
}

std::vector<int> Placement::nodes() const {
  std::vector<int> used;
  for (const RankPlace& place : ranks)
    if (used.empty() || used.back() != place.node) used.push_back(place.node);
  return used;
}

std::map<std::string, Amount> asked_per_worker(const ScalingConfig& scaling) {
  Asked asked;
  for (const auto& [name, amount] : scaling.resources_per_worker) asked[name] = to_amount(amount);
  if (scaling.use_gpu) asked.try_emplace("GPU", kWhole);
  return asked;
}

bool asks_for_anything(const Asked& asked) {
  return std::ranges::any_of(asked, [](const auto& each) { return each.second > 0; });
}

bool asks_for_cpus(const Asked& asked) {
  const auto cpus = asked.find("CPU");
  return cpus != asked.end() && cpus->second > 0;
}

std::optional<Placement> place_if_it_fits(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes,
                                          const std::map<std::string, std::string>& env) {
  const Asked asked = asked_per_worker(scaling);
  const auto counts = share_out(scaling, nodes, asked);
  if (!counts) return std::nullopt;
  Placement placement;
  if (!nodes.empty()) placement.head_address = nodes.front().address;
  const bool set_threads = !env.contains("OMP_NUM_THREADS");
  for (std::size_t i = 0; i < nodes.size(); ++i)
    place_on(nodes[i], static_cast<int>(i), (*counts)[i], asked, set_threads, placement);
  if (placement.nodes().size() == 1)
    for (RankPlace& place : placement.ranks) place.address = sys::kLoopback;
  const std::string note = note_of(nodes, *counts);
  placement.crowded = !note.empty();
  if (placement.crowded) placement.notes.push_back(note);
  return placement;
}

Placement place(const ScalingConfig& scaling, const std::vector<NodeOffer>& nodes,
                const std::map<std::string, std::string>& env) {
  if (auto placement = place_if_it_fits(scaling, nodes, env)) return *std::move(placement);
  refuse(scaling, nodes, asked_per_worker(scaling));
}

}  // namespace lockstep::driver
