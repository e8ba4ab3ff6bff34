#pragma once

#include <cstdint>
#include <initializer_list>
#include <lockstep/value.h>
#include <string>
#include <vector>

/// Which data a run reads. Nothing here opens a file or needs Arrow: workers do, by <lockstep/data.h>.
namespace lockstep {

/// Files, directories and patterns (`*`, `?`, `[...]`, `**`): `"train/*.parquet"`, or `{"a.csv", "b.csv"}`. Relative
/// ones are seen from the current directory of the process that makes the plan.
struct Paths : std::vector<std::string> {
  // NOLINTBEGIN(google-explicit-constructor): a path is written as text, without naming this type
  Paths(const char* path);
  Paths(const std::string& path);
  Paths(std::initializer_list<std::string> paths);
  Paths(std::vector<std::string> paths);
  // NOLINTEND(google-explicit-constructor)
};

/// What to read, as data: it travels to the workers. Immutable; methods give new plans.
class DatasetPlan {
 public:
  /// Only these columns, in this order. Others are not read.
  DatasetPlan select_columns(const std::vector<std::string>& names) const;
  /// The first `count` rows.
  DatasetPlan limit(std::int64_t count) const;

  /// {"read": KIND, "paths": [...], ..., "steps": [...]}.
  const Value& value() const { return value_; }
  explicit DatasetPlan(Value value) : value_(std::move(value)) {}

 private:
  Value value_;
};

DatasetPlan read_parquet(const Paths& paths);
/// `column_names`: of files whose first line is a row.
DatasetPlan read_csv(const Paths& paths, char delimiter = ',', const std::vector<std::string>& column_names = {});
/// One JSON object per line.
DatasetPlan read_json(const Paths& paths);
/// Lines, in the column `text`.
DatasetPlan read_text(const Paths& paths, bool drop_empty_lines = true);
/// The numbers 0 ... count - 1, in the column `id`.
DatasetPlan read_range(std::int64_t count);

/// How data sets reach the workers.
struct DataConfig {
  std::vector<std::string> datasets_to_split{"train"};    ///< each rank gets a part; of others, all rows
  std::vector<std::string> datasets_to_shuffle{"train"};  ///< in another order in each epoch; others keep theirs
  std::uint64_t seed = 0;
  std::int64_t window = 100'000;  ///< rows that are shuffled among each other
  std::string equal = "pad";      ///< the last rows: "pad" divides evenly, "drop" drops, "uneven" deals like others
  int prefetch = 2;               ///< windows, or blocks where nothing is shuffled, that are read ahead
  bool resume = true;             ///< continue where the data sets were when the checkpoint was saved

  bool operator==(const DataConfig&) const = default;
};

/// Throws ConfigError that names the first wrong field, its value and what it must be.
void validate(const DataConfig& config);

}  // namespace lockstep
