#include <lockstep/dataset.h>
#include <lockstep/error.h>

#include <filesystem>

namespace lockstep {
namespace {

/// Workers need not be where this process is now.
Value absolute(const Paths& paths) {
  if (paths.empty()) throw ConfigError("[data] there are no paths; name at least one file, directory or pattern");
  Value all = Value::array();
  for (const std::string& path : paths)
    all.push_back(path.find("://") != std::string::npos ? path : std::filesystem::absolute(path).string());
  return all;
}

DatasetPlan with_step(const DatasetPlan& plan, Value step) {
  Value value = plan.value();
  value["steps"].push_back(std::move(step));
  return DatasetPlan(std::move(value));
}

}  // namespace

Paths::Paths(const char* path) : vector{std::string(path)} {}
Paths::Paths(const std::string& path) : vector{path} {}
Paths::Paths(std::initializer_list<std::string> paths) : vector(paths) {}
Paths::Paths(std::vector<std::string> paths) : vector(std::move(paths)) {}

DatasetPlan DatasetPlan::select_columns(const std::vector<std::string>& names) const {
  return with_step(*this, {{"select_columns", names}});
}

DatasetPlan DatasetPlan::limit(std::int64_t count) const { return with_step(*this, {{"limit", count}}); }

DatasetPlan read_parquet(const Paths& paths) {
  return DatasetPlan({{"read", "parquet"}, {"paths", absolute(paths)}, {"steps", Value::array()}});
}

DatasetPlan read_csv(const Paths& paths, char delimiter, const std::vector<std::string>& column_names) {
  return DatasetPlan({{"read", "csv"},
                      {"paths", absolute(paths)},
                      {"delimiter", std::string(1, delimiter)},
                      {"column_names", column_names},
                      {"steps", Value::array()}});
}

DatasetPlan read_json(const Paths& paths) {
  return DatasetPlan({{"read", "json"}, {"paths", absolute(paths)}, {"steps", Value::array()}});
}

DatasetPlan read_text(const Paths& paths, bool drop_empty_lines) {
  return DatasetPlan({{"read", "text"},
                      {"paths", absolute(paths)},
                      {"drop_empty_lines", drop_empty_lines},
                      {"steps", Value::array()}});
}

DatasetPlan read_range(std::int64_t count) {
  return DatasetPlan({{"read", "range"}, {"count", count}, {"steps", Value::array()}});
}

}  // namespace lockstep
