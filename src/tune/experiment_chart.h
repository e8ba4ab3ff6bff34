#pragma once

#include <lockstep/value.h>

#include <string>
#include <vector>

#include "tune/chart.h"
#include "tune/experiment.h"
#include "tune/plots.h"

namespace lockstep::tune {

/// "pending", "running", "paused", "terminated" or "error".
const char* name_of(TrialState state);

/// An experiment's trials for plots. Metrics are those of the settings, then `more` that the last results may have;
/// these are minimised unless their name begins with "-", which is no part of it. Configurations that do not fit the
/// space (a scheduler may change them) keep the numbers that are found in them.
Chart read_chart(const Experiment& experiment, const std::vector<std::string>& more = {});

/// The metrics that options of a plot name and the experiment's settings do not.
std::vector<std::string> further_metrics(const Experiment& experiment, const PlotOptions& options);

/// The chart and all that a plot draws of it, as a plain value for programs in other languages: title, metrics,
/// dimensions, trials, and by kind "importance", "front", or "grid" (x, y, and the expected values, row by row).
Value plot_value(const Chart& chart, const PlotOptions& options);

}  // namespace lockstep::tune
