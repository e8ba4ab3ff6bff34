#include "engine/slurm/allocation.h"

#include <lockstep/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>

#include "base/text.h"
#include "engine/launched_commands.h"
#include "sys/agent_mark.h"

namespace lockstep::engine::slurm {
namespace {

/// More nodes than any cluster has; a larger range is a mistake.
constexpr int kMostNames = 1'000'000;

[[noreturn]] void fail(std::string_view list) {
  throw EngineError("[engine.slurm] " + in_quotes(list) + " is not a list of nodes as Slurm writes it");
}

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end && number >= 0 ? std::optional(number) : std::nullopt;
}

/// Splits at the commas that are not inside these brackets.
std::vector<std::string_view> split_outside(std::string_view text, char open, char close) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) depth += text[i] == open ? 1 : text[i] == close ? -1 : 0;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

/// The numbers of "1-3,07" with their leading zeros.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> result;
  for (const std::string_view range : split_outside(ranges, '[', ']')) {
    const auto dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const auto low = number_in(first);
    const auto high = dash == std::string_view::npos ? low : number_in(range.substr(dash + 1));
    if (!low || !high || *high < *low || *high - *low >= kMostNames) fail(list);
    for (int number = *low; number <= *high; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      result.push_back(std::move(digits));
    }
  }
  return result;
}

/// The names of one entry, "rack[1-2]n[0-3]".
std::vector<std::string> expand_entry(std::string_view entry, std::string_view list) {
  std::vector<std::string> names{""};
  while (!entry.empty()) {
    const auto open = entry.find('[');
    for (std::string& name : names) name += entry.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = entry.find(']', open);
    if (close == std::string_view::npos) fail(list);
    const auto numbers = expand_ranges(entry.substr(open + 1, close - open - 1), list);
    if (names.size() * numbers.size() > kMostNames) fail(list);
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& number : numbers) longer.push_back(name + number);
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

/// How many numbers "0-3,8" has.
int count_of(std::string_view ranges) {
  return ranges.empty() ? 0 : static_cast<int>(expand_ranges(ranges, ranges).size());
}

/// "gpu:tesla:2" of "gpu:tesla:2(IDX:0,3),nic:1(IDX:0)".
std::string gpus_of(std::string_view gres) {
  std::vector<std::string> gpus;
  for (std::string_view each : split_outside(gres, '(', ')')) {
    each = each.substr(0, each.find('('));
    for (const std::string_view prefix : {"gres:", "gres/"})
      if (each.starts_with(prefix)) each.remove_prefix(prefix.size());
    if (each == "gpu" || each.starts_with("gpu:")) gpus.emplace_back(each);
  }
  return joined(gpus, ",");
}

std::string variable(const Environment& env, const char* name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

bool is_worker(const Environment& env) { return env.contains(sys::kAgentId); }

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view entry : split_outside(list, '[', ']')) {
    if (entry.empty()) fail(list);
    std::ranges::move(expand_entry(entry, list), std::back_inserter(names));
  }
  return names;
}

Job parse_job(std::string_view text) {
  // Then come values that the user chose, which may have blanks.
  text = text.substr(0, text.find(" Command="));
  std::istringstream words{std::string(text)};
  Job job;
  std::vector<std::string> group;  // the nodes that the next words are about
  int cpus = 0;
  const std::array<std::pair<std::string_view, std::string*>, 5> kept{{{"JobId=", &job.id},
                                                                       {"Partition=", &job.partition},
                                                                       {"QOS=", &job.qos},
                                                                       {"Account=", &job.account},
                                                                       {"TimeLimit=", &job.time_limit}}};
  for (std::string word; words >> word;) {
    const std::string value = word.substr(std::min(word.find('=') + 1, word.size()));
    for (const auto& [key, field] : kept)
      if (word.starts_with(key) && value != "(null)") *field = value;
    if (word.starts_with("Nodes=")) group = expand_hostlist(value);
    if (word.starts_with("CPU_IDs=")) cpus = count_of(value);
    if (word.starts_with("GRES="))
      for (const std::string& name : group) job.nodes.push_back({name, cpus, gpus_of(value), job.id});
    if (value == "0") continue;
    if (word.starts_with("MinMemoryNode=")) job.memory = "--mem=" + value;
    if (word.starts_with("MinMemoryCPU=")) job.memory = "--mem-per-cpu=" + value;
  }
  if (job.time_limit == "UNLIMITED") job.time_limit.clear();
  if (job.id.empty() || job.nodes.empty())
    throw EngineError("[engine.slurm] scontrol shows no nodes of the job, but " + in_quotes(text));
  return job;
}

bool is_in_allocation_of_many(const Environment& env) {
  return !is_worker(env) && env.contains("SLURM_JOB_ID") &&
         number_in(variable(env, "SLURM_JOB_NUM_NODES")).value_or(1) > 1;
}

std::string many_tasks_problem(const Environment& env, const std::string& command) {
  const std::string tasks = variable(env, "SLURM_STEP_NUM_TASKS");
  if (is_worker(env) || !env.contains("SLURM_STEP_ID") || number_in(tasks).value_or(1) <= 1) return "";
  const bool has_quotes = command.find_first_of("\"$`\\") != std::string::npos;
  return "[engine.slurm] srun has started this program " + tasks +
         " times, and each of them would train for itself. Start it once; Lockstep starts the workers on all nodes. "
         "From "
         "a login node: sbatch -N " +
         variable(env, "SLURM_STEP_NUM_NODES") + " --wrap " +
         (has_quotes ? shell_command({command}) : '"' + command + '"') + ". In a batch script or salloc: " + command +
         " without srun. The script says how many workers it wants: "
         "ScalingConfig(num_workers=" +
         tasks + ")";
}

Environment environment_for_clients(Environment env) {
  constexpr std::array kKept{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_WORKING_CLUSTER"};
  std::erase_if(env, [&](const auto& each) {
    const std::string& name = each.first;
    if (std::ranges::find(kKept, name) != kKept.end()) return false;
    return name == sys::kAgentId || name.starts_with("SLURM_") || name.starts_with("SLURMD_") ||
           name.starts_with("SRUN_") || name.starts_with("SALLOC_");
  });
  return env;
}

}  // namespace lockstep::engine::slurm
