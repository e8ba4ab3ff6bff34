#include "data/dataset.h"

#include <arrow/table.h>
#include <arrow/type.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>

#include "base/text.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

int column_named(const arrow::Schema& schema, const std::string& name, const std::string& call) {
  const auto found = schema.GetAllFieldIndices(name);
  if (found.size() == 1) return found.front();
  throw ConfigError("[data] " + call + "() got " + in_quotes(name) + ", but " +
                    (found.empty() ? "the columns are " + joined(closest_first(schema.field_names(), name), ", ")
                                   : "several columns have this name"));
}

void check_names(const std::vector<std::string>& names, const std::string& call) {
  if (names.empty()) throw ConfigError("[data] " + call + "() got no columns; name at least one");
  for (const std::string& name : names)
    if (std::count(names.begin(), names.end(), name) > 1)
      throw ConfigError("[data] " + call + "() got " + in_quotes(name) + " twice");
}

}  // namespace

std::int64_t Dataset::count() const {
  const auto& rows = rows_of_blocks();
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

std::string Dataset::fingerprint() const {
  const std::string identity = source_->identity();
  const auto& rows = rows_of_blocks();
  const auto seed = XXH3_64bits(identity.data(), identity.size());
  const auto hash = XXH3_64bits_withSeed(rows.data(), rows.size() * sizeof(std::int64_t), seed);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

Dataset Dataset::select_columns(const std::vector<std::string>& names) const {
  check_names(names, "select_columns");
  return Dataset(select(source_, "select_columns: " + joined(names, ", ") + " (others are not read)",
                        [names](const arrow::Schema& schema) {
                          std::vector<Selected> selected;
                          for (const auto& name : names)
                            selected.push_back({column_named(schema, name, "select_columns"), name});
                          return selected;
                        }));
}

Dataset Dataset::drop_columns(const std::vector<std::string>& names) const {
  check_names(names, "drop_columns");
  return Dataset(
      select(source_, "drop_columns: " + joined(names, ", ") + " (not read)", [names](const arrow::Schema& schema) {
        std::set<int> dropped;
        for (const auto& name : names) dropped.insert(column_named(schema, name, "drop_columns"));
        std::vector<Selected> selected;
        for (int column = 0; column < schema.num_fields(); ++column)
          if (!dropped.contains(column)) selected.push_back({column, schema.field(column)->name()});
        if (selected.empty()) throw ConfigError("[data] drop_columns() got all columns; leave at least one");
        return selected;
      }));
}

Dataset Dataset::rename_columns(const std::vector<std::pair<std::string, std::string>>& names) const {
  std::vector<std::string> old, lines;
  for (const auto& [from, to] : names) {
    old.push_back(from);
    lines.push_back(from + " to " + to);
  }
  check_names(old, "rename_columns");
  return Dataset(select(source_, "rename_columns: " + joined(lines, ", "), [names](const arrow::Schema& schema) {
    std::vector<std::string> all = schema.field_names();
    for (const auto& [from, to] : names)
      all[static_cast<std::size_t>(column_named(schema, from, "rename_columns"))] = to;
    std::vector<Selected> selected;
    for (int column = 0; column < schema.num_fields(); ++column) {
      const auto& name = all[static_cast<std::size_t>(column)];
      if (std::count(all.begin(), all.end(), name) > 1)
        throw ConfigError("[data] rename_columns() would give two columns the name " + in_quotes(name));
      selected.push_back({column, name});
    }
    return selected;
  }));
}

Dataset Dataset::limit(std::int64_t count) const {
  if (count < 0) throw ConfigError("[data] limit() got " + std::to_string(count) + "; it must be 0 or more");
  return Dataset(slice(source_, 0, count, "limit: " + std::to_string(count) + " (blocks after it are not read)"));
}

std::shared_ptr<arrow::Table> Dataset::read(std::size_t block) const {
  const auto table = measured(*source_, block, all_columns(*schema()));
  // Files may differ in what they say about nulls; here all blocks have one schema.
  return arrow::Table::Make(schema(), table->columns(), table->num_rows());
}

bool Dataset::read_numbers(std::size_t block, const Room& room) const {
  return measured_numbers(*source_, block, all_columns(*schema()), room);
}

}  // namespace lockstep::data
