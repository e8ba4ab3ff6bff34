#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace lockstep::driver {

/// Collects the n-th reports of all ranks of an attempt into rows, in whatever order they arrive.
///
/// Reports that wait for other ranks take at most `most_bytes`. Beyond that, the oldest row is delivered without the
/// ranks that are behind; their reports of that row are dropped when they arrive, so that every row holds n-th reports
/// only.
class ReportRows {
 public:
  static constexpr std::size_t kMostBytes = 64 << 20;

  explicit ReportRows(std::size_t ranks = 0, std::size_t most_bytes = kMostBytes)
      : ranks_(ranks), most_bytes_(most_bytes) {}

  void add(int rank, wire::Report report);
  /// The rank makes no more reports.
  void finish(int rank);
  /// The rank is restarted: its next report belongs to the row after all that others have started, which are delivered
  /// without it.
  void restart(int rank);
  /// The next complete row: by rank, nothing for a rank that ended without that report.
  std::optional<std::vector<std::optional<wire::Report>>> next();

 private:
  struct Rank {
    std::deque<wire::Report> waiting;
    std::size_t to_drop = 0;  ///< reports to drop, whose rows were already delivered
    bool finished = false;
    bool absent = false;  ///< not in the forced rows
  };
  bool is_due() const;

  std::vector<Rank> ranks_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::size_t forced_ = 0;  ///< rows to deliver incomplete
};

}  // namespace lockstep::driver
