#pragma once

#include <string>
#include <vector>

#include "tune/chart.h"

namespace lockstep::tune {

/// Where the values of one metric lie between the worst and the best, for colours. The worst of values that are far
/// from the others is the fence that importance uses, too: three quarters of all are not drawn alike for its sake.
struct QualityScale {
  double worst = 0, best = 1;

  static QualityScale of(const Chart& chart, std::size_t metric);
  /// 0 (worst) to 1 (best); 0.5 if all are equal.
  double share(double value) const;
};

/// The lines that the mouse shows about a trial: its name, state, metrics and parameters.
std::string hover_of(const Chart& chart, const Chart::Trial& trial);
/// "accuracy (max)".
std::string metric_title(const Chart::Metric& metric);
/// "500 of 10000 trials are drawn." if they are not all.
std::string drawn_note(std::size_t drawn, std::size_t all);

}  // namespace lockstep::tune
