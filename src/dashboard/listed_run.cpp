#include <lockstep/error.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "dashboard/catalog.h"
#include "dashboard/checkpoints.h"
#include "dashboard/page_json.h"
#include "metrics/autofill.h"
#include "metrics/flatten.h"

namespace lockstep::dashboard {
namespace {

constexpr std::size_t kMostMetrics = 40;
constexpr std::size_t kLongestMetric = 200;

/// The last report's numbers and short texts, without autofilled keys.
Value shown_metrics(const Value& metrics) {
  Value shown = Value::object();
  if (!metrics.is_object()) return shown;
  std::string prefix;
  for (const auto& [key, value] : metrics.items()) {
    if (metrics::is_autofilled(key)) continue;
    metrics::for_each_leaf_at(key, value, prefix, [&](std::string_view path, const Value& leaf) {
      if (shown.size() >= kMostMetrics) return;
      if (const auto number = number_of(leaf))
        shown[std::string(path)] = *number;
      else if (leaf.is_string())
        shown[std::string(path)] = first_characters(leaf.get<std::string>(), kLongestMetric);
    });
  }
  return shown;
}

/// How far a run is, from 0 to 1: by the limits that end it, else by epochs if both the configuration and the reports
/// have them under their usual names. Nothing if it cannot be known.
std::optional<double> progress_of(const store::RunView& view) {
  const store::RunRecord& record = view.record;
  if (view.state() == "finished") return 1.0;
  const Value* stop = find_path(record.config_run, "stop");
  if (stop != nullptr && stop->is_object()) {
    for (const char* key : {"training_iteration", "time_total_s"}) {
      const auto limit = number_at(*stop, key);
      const auto reached = number_at(record.metrics, key);
      if (limit && *limit > 0 && reached) return std::clamp(*reached / *limit, 0.0, 1.0);
    }
  }
  const Value* config = find_path(record.metrics, "config");
  const auto epoch = number_at(record.metrics, "epoch");
  if (config != nullptr && epoch)
    for (const char* key : {"num_epochs", "epochs", "max_epochs", "n_epochs"})
      if (const auto all = number_at(*config, key); all && *all > 0) return std::clamp((*epoch + 1) / *all, 0.0, 1.0);
  return std::nullopt;
}

Value best_of(const store::RunView& view, sys::Files& files) {
  const auto& config = view.checkpoint_config;
  if (config.score_attribute.empty()) return nullptr;
  const bool is_max = config.score_order != "min";
  Value best = nullptr;
  for (const ShownCheckpoint& each : shown_checkpoints(view, files)) {
    if (!each.score || !std::isfinite(*each.score)) continue;
    if (!best.is_null() && (is_max ? *each.score < best["value"] : *each.score > best["value"])) continue;
    best = {{"metric", config.score_attribute},
            {"value", *each.score},
            {"order", is_max ? "max" : "min"},
            {"seq", each.seq}};
  }
  return best;
}

}  // namespace

std::string listed_run(const std::string& id, const store::RunView& view, sys::Files& files) {
  const store::RunRecord& record = view.record;
  const auto progress = progress_of(view);
  const auto duration = view.duration();
  const Value nodes = record.attempts.empty() ? Value::array() : Value(record.attempts.back().nodes);
  Value best;
  try {
    best = best_of(view, files);
  } catch (const StorageError&) {
    best = nullptr;
  }
  return page_json(Value{{"id", id},
                         {"name", view.path.filename().string()},
                         {"state", view.state()},
                         {"trainer", record.trainer},
                         {"workers", record.attempts.empty() ? record.num_workers : record.attempts.back().world_size},
                         {"nodes", nodes},
                         {"attempts", record.attempt + 1},
                         {"failures", record.failures.size()},
                         {"checkpoints", record.next_seq},
                         {"checkpoints_skipped", record.checkpoints_skipped},
                         {"iteration", record.training_iteration},
                         {"progress", progress ? Value(*progress) : Value(nullptr)},
                         {"created", or_null(record.created)},
                         {"updated", or_null(record.updated)},
                         {"duration", duration ? Value(*duration) : Value(nullptr)},
                         {"metrics", shown_metrics(record.metrics)},
                         {"best", best},
                         {"error", first_characters(record.error, kLongestMetric)}});
}

std::string unreadable_run(const std::string& id, const std::string& why) {
  return page_json(Value{{"id", id},
                         {"name", std::filesystem::path(id).filename().string()},
                         {"state", "unreadable"},
                         {"metrics", Value::object()},
                         {"nodes", Value::array()},
                         {"error", why}});
}

}  // namespace lockstep::dashboard
