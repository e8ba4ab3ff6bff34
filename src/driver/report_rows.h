#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace lockstep::driver {

/// Puts the n-th reports of all ranks of an attempt together, whatever order they come in.
///
/// Reports that wait for other ranks' take at most `most_bytes`. Beyond it the oldest row goes out without the ranks
/// that are behind; their reports of that row are dropped when they come, so that every row stays one of n-th reports.
class ReportRows {
 public:
  static constexpr std::size_t kMostBytes = 64 << 20;

  explicit ReportRows(std::size_t ranks = 0, std::size_t most_bytes = kMostBytes)
      : ranks_(ranks), most_bytes_(most_bytes) {}

  void add(int rank, wire::Report report);
  /// The rank makes no further report.
  void finish(int rank);
  /// The rank begins anew: its next report belongs to the row after all that others have begun, which go out without
  /// it.
  void restart(int rank);
  /// The next row that is complete: by rank, nothing for a rank that ended without that report.
  std::optional<std::vector<std::optional<wire::Report>>> next();

 private:
  struct Rank {
    std::deque<wire::Report> waiting;
    std::size_t to_drop = 0;  ///< reports still to come whose rows are gone
    bool finished = false;
    bool absent = false;  ///< from the rows that are forced
  };
  bool is_due() const;

  std::vector<Rank> ranks_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::size_t forced_ = 0;  ///< rows to go out as they are
};

}  // namespace lockstep::driver
